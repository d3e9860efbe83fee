"""The stock decode path of Kimi K3 layers, one named function for each kernel that stock launches."""

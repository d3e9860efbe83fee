"""The HTTP side: webhook intake, health, pages and the JSON API."""

"""Rules about pull requests, one file each: a snapshot, its trees and its evidence in, findings out."""

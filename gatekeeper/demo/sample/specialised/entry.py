"""What the gate races: the specialised implementation."""

from .gate import candidate as candidate

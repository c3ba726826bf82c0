"""Pictures of CartPole, drawn with NumPy alone."""

import numpy as np


def draw(position: float, angle: float, low: float, high: float, *, height: int = 400, width: int = 600) -> np.ndarray:
    """A picture of cart, pole and the band of rewarded angles, green while the pole is inside it."""
    scale = width / 6.0  # pixels per metre: the track is 4.8 m long
    rows, columns = np.mgrid[0:height, 0:width]
    right = (columns - width / 2) / scale - position  # metres from the pivot, to the right and up
    up = (0.72 * height - rows) / scale
    distance, direction = np.hypot(right, up), np.arctan2(right, up)
    pole = 2.0  # drawn at twice its length, so that a few degrees can be seen
    along, across = right * np.sin(angle) + up * np.cos(angle), right * np.cos(angle) - up * np.sin(angle)
    inside = low <= angle <= high

    picture = np.full((height, width, 3), 255, np.uint8)
    band = (low <= direction) & (direction <= high) & (distance <= 1.15 * pole)
    picture[band] = (190, 235, 190) if inside else (250, 215, 205)
    edges = sum(np.abs(distance * np.sin(direction - edge)) < 0.012 for edge in (low, high)) > 0
    picture[edges & (up > 0) & (distance <= 1.15 * pole)] = (60, 150, 60) if inside else (200, 80, 60)
    picture[(np.abs(up + 0.15) < 0.01) & (np.abs(right + position) <= 2.4)] = (0, 0, 0)
    picture[(np.abs(right) < 0.25) & (np.abs(up + 0.05) < 0.15)] = (40, 40, 40)
    picture[(np.abs(across) < 0.045) & (along >= 0) & (along <= pole)] = (202, 152, 101)
    picture[distance < 0.06] = (129, 132, 203)
    return picture

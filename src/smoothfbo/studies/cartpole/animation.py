"""A learning CartPole, as a small animation."""

from pathlib import Path

import numpy as np
from jaxtyping import Float
from PIL import Image, ImageDraw

from smoothfbo.environments.picture import draw
from smoothfbo.harness import store

SIZE = {"height": 160, "width": 240}
FRAME = 40  # milliseconds: twice as fast as it happens, with every fourth step of 20 ms
PAUSE = 500  # milliseconds that the last picture of an episode stays


def animate(path: Path, episodes: Float[np.ndarray, "moment step 5"]) -> Path:
    """Write a GIF: the policy acts at one moment of training after the other, with the rewarded band of that moment.

    Columns are those of the stored episodes: round, low, high, position, angle. An episode that ends early holds its
    last picture.
    """
    frames, durations = [], []
    for steps in episodes:
        alive = steps[np.isfinite(steps[:, -1])]
        frames += [_frame(*map(float, step), fallen=len(alive) < len(steps)) for step in alive]
        durations += [FRAME] * (len(alive) - 1) + [PAUSE]
    both = [draw(0.0, angle, -0.1, 0.1, **SIZE) for angle in (0.0, 0.2)]  # inside the band and outside
    palette = Image.fromarray(np.concatenate(both)).quantize(16)  # the same few colours in all pictures
    first, *others = (frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames)
    store.write(path, lambda file: first.save(file, save_all=True, append_images=others, duration=durations, loop=0))
    return path


def _frame(time: float, low: float, high: float, position: float, angle: float, *, fallen: bool) -> Image.Image:
    image = Image.fromarray(draw(position, angle, low, high, **SIZE))
    text = f"after {time + 1:,.0f} steps" + (" (this episode ends early)" if fallen else "")
    ImageDraw.Draw(image).text((8, SIZE["height"] - 18), text, fill=(29, 29, 31))
    return image

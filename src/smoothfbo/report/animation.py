"""A learning CartPole, as a small animation."""

from pathlib import Path

import numpy as np
from jaxtyping import Float
from PIL import Image, ImageDraw

from smoothfbo.environments.picture import draw
from smoothfbo.runs import store

SIZE = {"height": 220, "width": 330}
FRAME = 40  # milliseconds: twice as fast as it happens, with every fourth step of 20 ms
PAUSE = 12  # frames for which the last one of an episode stays


def animate(path: Path, episodes: Float[np.ndarray, "moment step 5"]) -> Path:
    """Write a GIF: the policy acts at one moment of training after the other, with the rewarded band of that moment.

    Columns are those of the stored episodes: round, low, high, position, angle. An episode that ends early holds its
    last picture.
    """
    frames = []
    for steps in episodes:
        alive = steps[np.isfinite(steps[:, -1])]
        for step in (*alive, *[alive[-1]] * PAUSE):
            frames.append(_frame(*(float(number) for number in step), fallen=len(alive) < len(steps)))
    first, *others = frames
    store.write(
        path,
        lambda file: first.save(file, save_all=True, append_images=others, duration=FRAME, loop=0, optimize=True),
    )
    return path


def _frame(time: float, low: float, high: float, position: float, angle: float, *, fallen: bool) -> Image.Image:
    image = Image.fromarray(draw(position, angle, low, high, **SIZE))
    text = f"after {time + 1:,.0f} steps" + (" (this episode ends early)" if fallen else "")
    ImageDraw.Draw(image).text((8, SIZE["height"] - 18), text, fill=(29, 29, 31))
    return image.quantize(16)

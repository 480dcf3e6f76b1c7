"""A team's space as bytes, so that another process need not learn it again. Numbers and JSON: nothing could run."""

import io
import zipfile

import msgspec
import numpy
from msgspec import Struct

from chargehand.agents.routers.calibration import Calibration
from chargehand.agents.routers.regression import Regression
from chargehand.agents.routers.space import Learnt, Near, Space, Spread

MOST_BYTES = 16 * 1024 * 1024  # a larger space is learnt anew: it would slow the file down that it is kept in
FORMAT = "1"  # part of the key that a space is kept by: another one where the arithmetic or the format changes


class _Header(Struct, frozen=True):
    """All that is no array. Without a `spread` the space goes by the nearest point, else by a regression."""

    names: tuple[str, ...]
    calibration: Calibration
    threshold: float
    own: dict[str, float]
    centre: float = 0.0
    spread: Spread | None = None


def pack_space(space: Space) -> bytes:
    measure = space.measure
    parts = (space.names, space.calibration, space.threshold, space.own)
    body = io.BytesIO()
    if isinstance(measure, Near):
        numpy.savez(
            body,
            header=_encode(_Header(*parts, centre=measure.centre)),
            starts=measure.starts,
            middles=measure.middles,
            points=measure.points,
            crowded=measure.crowded,
        )
    else:
        numpy.savez(
            body,
            header=_encode(_Header(*parts, spread=measure.spread)),
            starts=measure.starts,
            middles=measure.middles,
            weights=measure.regression.weights,
            offset=measure.regression.offset,
        )
    return body.getvalue()


def _encode(header: _Header) -> "numpy.typing.NDArray[numpy.uint8]":
    return numpy.frombuffer(msgspec.json.encode(header), numpy.uint8)


def unpack_space(body: bytes, names: tuple[str, ...], width: int) -> Space:
    """Raises ValueError where it is damaged, or is not the space of these workers at this width."""
    try:
        with numpy.load(io.BytesIO(body), allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        header = msgspec.json.decode(arrays.pop("header").tobytes(), type=_Header)
        starts = arrays["starts"]
        middles = arrays["middles"]
        measure: Near | Learnt
        if header.spread is None:
            points = arrays["points"]
            crowded = arrays["crowded"]
            measure = Near(points=points, starts=starts, middles=middles, crowded=crowded, centre=header.centre)
            fits = points.shape == (len(crowded), width) and middles.shape == (len(names), width)
        else:
            regression = Regression(arrays["weights"], arrays["offset"])
            measure = Learnt(middles, regression, starts, header.spread)
            fits = middles.shape == regression.weights.shape == (len(regression.offset), width)
    except (KeyError, OSError, EOFError, zipfile.BadZipFile, msgspec.MsgspecError) as error:
        raise ValueError(f"a kept route cannot be read: {error}") from error
    if not fits or header.names != names or len(starts) != len(names):
        raise ValueError("a kept route is that of another team")
    if not all(numpy.isfinite(array).all() for array in arrays.values()):
        raise ValueError("a kept route holds no numbers")
    return Space(
        names=names, measure=measure, calibration=header.calibration, threshold=header.threshold, own=header.own
    )

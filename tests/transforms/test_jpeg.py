"""Decoding JPEG files and cropping them: against decoding all of them and cropping after."""

import contextlib
import io
import pickle
import sys
from typing import Any

import cv2
import numpy as np
import pytest
from PIL import Image as Pillow

import bushel
from bushel.errors import MissingPackageError, PlanError, RecordError
from bushel.transforms import jpeg, jpeg_decoders
from bushel.transforms.jpeg import DecodeAndRandomCrop, decode
from bushel.transforms.jpeg_decoders import Decoder, Image, with_opencv, with_pillow
from bushel.transforms.jpeg_header import read_header, shortened


def decoders() -> list[Decoder]:
    found = [with_opencv(), with_pillow()]
    with contextlib.suppress(ImportError):  # it is quicker, and nobody has to have it
        found.append(jpeg_decoders.with_simplejpeg())
    return found


@pytest.fixture(params=decoders(), ids=lambda decoder: decoder.name)
def installed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Decoder:
    """Makes one of the decoders the one that is used."""
    found: Decoder = request.param
    monkeypatch.setattr(jpeg, "decoder", lambda: found)
    return found


def picture(height: int, width: int) -> Image:
    """Something smooth in which every place looks different."""
    down, across = np.mgrid[:height, :width]
    red, green = 255 * down / height, 255 * across / width
    return np.stack([red, green, 127 + 90 * np.sin((down + across) / 25)], 2).astype(np.uint8)


def encoded(image: Any, mode: str = "RGB", **options: Any) -> bytes:
    file = io.BytesIO()
    Pillow.fromarray(image).convert(mode).save(file, "JPEG", quality=95, **options)
    return file.getvalue()


def by_pillow(file: bytes) -> Image:
    return np.array(Pillow.open(io.BytesIO(file)).convert("RGB"))


def far_apart(one: Image, other: Image) -> float:
    assert one.shape == other.shape
    return float(np.abs(one.astype(int) - other.astype(int)).mean())


@pytest.mark.parametrize("size", [(300, 400), (17, 9), (1, 1), (8, 1)])
def test_decode_gives_all_pixels(installed: Decoder, size: tuple[int, int]) -> None:
    file = encoded(picture(*size))
    image = decode(file)
    assert far_apart(image, by_pillow(file)) < 0.5
    # It is the caller's own.
    decode(file)[:] = 0
    image += 0
    assert far_apart(image, by_pillow(file)) < 0.5


@pytest.mark.parametrize(
    ("min_size", "expected"),
    [
        (None, (300, 400)),
        (151, (300, 400)),
        (150, (150, 200)),
        ((75, 101), (150, 200)),
        (75, (75, 100)),
        (37, (38, 50)),
        (1, (38, 50)),
        (500, (300, 400)),
    ],
)
def test_decode_stays_above_the_least_size(
    installed: Decoder, min_size: int | tuple[int, int] | None, expected: tuple[int, int]
) -> None:
    file = encoded(picture(300, 400))
    image = decode(file, min_size)
    assert image.shape == (*expected, 3)
    whole = cv2.resize(by_pillow(file), expected[::-1], interpolation=cv2.INTER_AREA)
    assert far_apart(image, whole) < 3


@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"subsampling": 0}])
@pytest.mark.parametrize("scale", [None, (0.05, 0.2), (0.9, 1.0), (0.08, 1.0)])
def test_crop_is_what_cropping_the_whole_gives(
    installed: Decoder, scale: tuple[float, float] | None, options: dict[str, Any]
) -> None:
    file = encoded(picture(600, 800), **options)
    whole = by_pillow(file)
    for seed in range(8):
        crop = DecodeAndRandomCrop(96, scale=scale)
        image = crop.random_map(file, np.random.default_rng(seed))
        assert image.shape == (96, 96, 3) and image.dtype == np.uint8
        # The same draws, by hand.
        rng = np.random.default_rng(seed)
        place = (
            jpeg._place((600, 800), (96, 96), rng)
            if scale is None
            else jpeg._draw((600, 800), scale, (3 / 4, 4 / 3), rng)
        )
        flip = rng.random() < 0.5
        top, left, height, width = place
        expected = whole[top : top + height, left : left + width]
        if scale is not None:
            assert scale[0] * 0.95 < height * width / (600 * 800) <= scale[1]
            expected = cv2.resize(expected, (96, 96), interpolation=cv2.INTER_AREA)
        assert far_apart(image, expected[:, ::-1] if flip else expected) < (3 if scale else 0.5)


def test_same_generator_same_crop(installed: Decoder) -> None:
    file = encoded(picture(200, 300))
    crop = DecodeAndRandomCrop(64)
    one, again, other = (crop.random_map(file, np.random.default_rng(n)) for n in (1, 1, 2))
    assert one.base is None and one.flags.c_contiguous and one.flags.writeable
    assert np.array_equal(one, again) and not np.array_equal(one, other)


def test_a_shortened_header_stops_the_decoder() -> None:
    file = encoded(picture(400, 64))
    header = read_header(file)
    assert header.rows_apart == 16
    # OpenCV would say on standard error what it did not read.
    with Pillow.open(io.BytesIO(shortened(file, header, 64))) as image:
        top = np.array(image)
    # Colours are smoothed across the last border.
    assert np.array_equal(top[:48], by_pillow(file)[:48])


def test_rows_in_a_file() -> None:
    image = picture(64, 64)
    assert read_header(encoded(image, subsampling=0)).rows_apart == 8
    assert read_header(encoded(image, progressive=True)).rows_apart is None
    assert read_header(encoded(image, "L")).rows_apart == 8


def test_grey_and_four_colours(installed: Decoder) -> None:
    grey = decode(encoded(picture(40, 60), "L"))
    assert grey.shape == (40, 60, 3)
    assert np.array_equal(grey[..., 0], grey[..., 1]) and np.array_equal(grey[..., 0], grey[..., 2])
    half = decode(encoded(picture(40, 60), "L"), 20)
    assert half.shape == (20, 30, 3)
    if installed.name != "simplejpeg":
        inks = encoded(picture(40, 60), "CMYK")
        assert far_apart(decode(inks), by_pillow(inks)) < 3


def test_orientation_is_not_applied(installed: Decoder) -> None:
    exif = Pillow.Exif()
    exif[0x0112] = 6  # a quarter turn
    image = picture(40, 60)
    assert np.array_equal(decode(encoded(image, exif=exif)), decode(encoded(image)))


@pytest.mark.parametrize("size", [(1, 1), (3, 500), (500, 3), (20, 30)])
@pytest.mark.parametrize("scale", [None, (0.08, 1.0)])
def test_pictures_smaller_than_the_crop(
    installed: Decoder, size: tuple[int, int], scale: tuple[float, float] | None
) -> None:
    file = encoded(picture(*size))
    for seed in range(5):
        crop = DecodeAndRandomCrop((32, 48), scale=scale)
        assert crop.random_map(file, np.random.default_rng(seed)).shape == (32, 48, 3)


def test_kinds_of_elements(installed: Decoder) -> None:
    file = encoded(picture(100, 100))
    row = np.frombuffer(file, np.uint8)
    for data in (file, bytearray(file), memoryview(file), row):
        assert np.array_equal(decode(data), decode(file))
    crop = DecodeAndRandomCrop(32, field="image")
    record = crop.random_map({"image": row, "label": 3}, np.random.default_rng(0))
    alone = DecodeAndRandomCrop(32).random_map(file, np.random.default_rng(0))
    assert record["label"] == 3 and np.array_equal(record["image"], alone)


def test_without_flip_nothing_is_mirrored(installed: Decoder) -> None:
    file = encoded(picture(100, 100))
    crop = DecodeAndRandomCrop(100, scale=None, flip=False)
    for seed in range(4):
        assert np.array_equal(crop.random_map(file, np.random.default_rng(seed)), decode(file))


def test_in_a_pipeline_with_workers() -> None:
    files = [encoded(picture(60 + n, 80)) for n in range(8)]
    records = bushel.MapDataset.source(
        [{"image": file, "label": n} for n, file in enumerate(files)]
    )
    crop = pickle.loads(pickle.dumps(DecodeAndRandomCrop(32, field="image")))
    dataset = records.seed(3).shuffle().random_map(crop).batch(4)
    stream = dataset.to_iter_dataset()
    options = bushel.MultiprocessingOptions(num_workers=2)
    with iter(stream.mp_prefetch(options)) as batches:
        delivered = [{name: np.array(x) for name, x in batch.items()} for batch in batches]
    assert len(delivered) == 2
    for batch, expected in zip(delivered, stream, strict=True):
        assert np.array_equal(batch["image"], expected["image"])
        assert np.array_equal(batch["label"], expected["label"])


def damaged() -> dict[str, bytes]:
    file = encoded(picture(200, 200))
    return {
        "cut off": file[: len(file) // 2],
        "header only": file[:30],
        "two bytes": file[:2],
        "no rows": bytes(shortened(file, read_header(file), 0)),
    }


@pytest.mark.parametrize("data", damaged().values(), ids=damaged())
def test_damaged_files(installed: Decoder, data: bytes) -> None:
    with pytest.raises(RecordError, match=rf"JPEG file of {len(data):,} bytes is cut off"):
        decode(data)


@pytest.mark.parametrize("data", [b"", b"\x89PNG\r\n\x1a\n", b"hello"])
def test_other_files(installed: Decoder, data: bytes) -> None:
    with pytest.raises(RecordError, match=rf"these {len(data)} bytes are no JPEG file: they begin"):
        DecodeAndRandomCrop(8).random_map(data, np.random.default_rng(0))


def test_nonsense_within_a_file(installed: Decoder) -> None:
    file = encoded(picture(64, 64))
    without_tables = file.replace(b"\xff\xdb", b"\xff\xfe")  # comments, where a decoder needs them
    with pytest.raises(RecordError, match=r"of 64 × 64 pixels and .* bytes cannot be decoded: "):
        decode(without_tables)


def test_the_position_of_a_bad_file() -> None:
    files = [encoded(picture(40, 40)), b"hello"]
    dataset = bushel.MapDataset.source(files).seed(0).random_map(DecodeAndRandomCrop(8))
    with pytest.raises(RecordError) as caught:
        dataset[1]
    assert "at position 1" in caught.value.__notes__[0]


@pytest.mark.parametrize(
    ("element", "message"),
    [
        (np.zeros((4, 4, 3), np.uint8), r"array of uint8 \(4, 4, 3\)\. Is it decoded already"),
        (np.zeros(4, np.int64), r"array of int64 \(4,\)"),
        ({"image": b""}, "this is of type dict. Name the entry"),
    ],
)
def test_elements_that_are_no_files(element: Any, message: str) -> None:
    with pytest.raises(RecordError, match=message):
        DecodeAndRandomCrop(8).random_map(element, np.random.default_rng(0))


def test_a_field_of_no_dict() -> None:
    crop = DecodeAndRandomCrop(8, field="image")
    with pytest.raises(PlanError, match="elements that are dicts, and this one is of type bytes"):
        crop.random_map(b"", np.random.default_rng(0))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 0}, "`size` is a height and a width in pixels.* got 0"),
        ({"size": (8, -1)}, r"got \(8, -1\)"),
        ({"size": 8, "scale": (0.5, 1.5)}, r"`scale` is the least.* got \(0.5, 1.5\)"),
        ({"size": 8, "scale": (0.0, 1.0)}, "above 0 and up to 1"),
        ({"size": 8, "ratio": (2.0, 1.0)}, r"`ratio` is the least.* got \(2.0, 1.0\)"),
    ],
)
def test_options_that_make_no_sense(options: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        DecodeAndRandomCrop(**options)


def test_without_any_decoder(monkeypatch: pytest.MonkeyPatch) -> None:
    caches = (jpeg_decoders.decoder, jpeg_decoders.pillow_images)
    for cached in caches:
        cached.cache_clear()
    with monkeypatch.context() as patch:
        for package in ("simplejpeg", "cv2", "PIL"):
            patch.setitem(sys.modules, package, None)
        with pytest.raises(MissingPackageError, match=r'pip install "bushel\[images\]"'):
            DecodeAndRandomCrop(8)
    assert DecodeAndRandomCrop(8).random_map(
        encoded(picture(9, 9)), np.random.default_rng(0)
    ).shape == (8, 8, 3)

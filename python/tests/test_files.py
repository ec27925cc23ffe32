"""Files that models name and write."""

import os
import pathlib

import numpy as np
import pytest

import fxc

TEXT = 'weights "{}"\ngraph main {{ %x : f32[2] = placeholder x  %w = get_attr w  %y = call_function torch.add(%x, %w)  output %y }}'


def weights(path: pathlib.Path) -> None:
    """A file with the weight `w`, written by hand."""
    header = b'{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'.ljust(56)
    path.write_bytes(len(header).to_bytes(8, "little") + header + np.ones(2, np.float32).tobytes())


def test_a_text_names_weights_in_its_folder_or_an_allowed_one(tmp_path: pathlib.Path) -> None:
    (tmp_path / "models").mkdir()
    weights(tmp_path / "w.safetensors")
    model = tmp_path / "models" / "m.fxir"
    model.write_text(TEXT.format("../w.safetensors"))
    with pytest.raises(fxc.Error, match="E0410"):
        fxc.load(model)
    x = np.ones(2, np.float32)
    assert fxc.load(model, allow_paths=[tmp_path])(x).tolist() == [2, 2]
    text = TEXT.format(tmp_path / "w.safetensors")
    with pytest.raises(fxc.Error, match="E0410"):
        fxc.loads(text)
    assert fxc.loads(text, allow_paths=[tmp_path])(x).tolist() == [2, 2]
    weights(tmp_path / "models" / "v.safetensors")
    model.write_text(TEXT.format("v.safetensors"))
    assert fxc.load(model)(x).tolist() == [2, 2]


def test_drawings_and_traces_replace_files_behind_links(tmp_path: pathlib.Path) -> None:
    model = fxc.loads("graph main { %x : f32[2] = placeholder x  %y = call_function torch.neg(%x)  output %y }")
    for name in ["a.svg", "a.json"]:
        (tmp_path / f"real-{name}").write_text("old")
        os.chmod(tmp_path / f"real-{name}", 0o640)
        (tmp_path / name).symlink_to(f"real-{name}")
    drawing = model.to_svg(tmp_path / "a.svg")
    model.profile(np.ones(2, np.float32), runs=2).save_trace(tmp_path / "a.json")
    assert (tmp_path / "real-a.svg").read_text() == drawing
    assert "traceEvents" in (tmp_path / "real-a.json").read_text()
    assert (tmp_path / "a.json").is_symlink() and os.stat(tmp_path / "a.json").st_mode & 0o777 == 0o640
    with pytest.raises(FileNotFoundError):
        model.to_svg(tmp_path / "no" / "a.svg")
    assert sorted(os.listdir(tmp_path)) == ["a.json", "a.svg", "real-a.json", "real-a.svg"]

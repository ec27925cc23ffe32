"""Writes images.bin and labels.bin of ../digits/images.npz, as a C program reads them: python make_images.py"""
import pathlib

import numpy

here = pathlib.Path(__file__).parent
with numpy.load(here.parent / "digits" / "images.npz") as images:
    numpy.ascontiguousarray(images["x"][:120], dtype="<f4").tofile(here / "images.bin")
    numpy.ascontiguousarray(images["labels"][:120], dtype="<i8").tofile(here / "labels.bin")

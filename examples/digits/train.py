"""Trains the network of digits.fxir and writes its weights and the held-out images.

    python train.py

Data: scikit-learn's copy of the UCI "Optical Recognition of Handwritten Digits" set, 1797 real 8x8 images with
grey levels 0..16. A fifth of them (360 images, chosen by a fixed seed, every digit in its share) is held out;
the network never sees them. Written beside this file:

    digits.safetensors   the trained parameters, under the names that digits.fxir uses
    images.npz           x: f32[360, 1, 8, 8], the held-out images scaled to 0..1; labels: i64[360]

Takes about half a minute on one core. Needs torch, scikit-learn, numpy and safetensors.
"""
import pathlib

import numpy as np
import torch
from safetensors.torch import save_file
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

HERE = pathlib.Path(__file__).parent


class Digits(nn.Module):
    """Two convolutions, two linear layers; ten scores per image."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1)
        self.pool = nn.MaxPool2d(2)
        self.act = nn.ReLU()
        self.fc1 = nn.Linear(32 * 2 * 2, 64)
        self.fc2 = nn.Linear(64, 10)

    def forward(self, x):
        x = self.pool(self.act(self.conv1(x)))
        x = self.pool(self.act(self.conv2(x)))
        x = self.act(self.fc1(torch.flatten(x, 1)))
        return self.fc2(x)


def shifted(x):
    """Each image moved by up to one pixel: the data set is small, and a digit stays the same digit."""
    dy, dx = torch.randint(-1, 2, (2,)).tolist()
    padded = nn.functional.pad(x, (1, 1, 1, 1))
    return padded[:, :, 1 + dy : 9 + dy, 1 + dx : 9 + dx]


def main():
    torch.manual_seed(0)
    images, labels = load_digits(return_X_y=True)
    images = (images / 16).astype(np.float32).reshape(-1, 1, 8, 8)
    xs, held_x, ys, held_y = train_test_split(images, labels, test_size=360, random_state=0, stratify=labels)
    xs, ys = torch.from_numpy(xs), torch.from_numpy(ys)

    model = Digits()
    epochs, batch = 60, 64
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=6e-3, total_steps=epochs * -(-len(xs) // batch))
    for _ in range(epochs):
        for i in torch.randperm(len(xs)).split(batch):
            loss = nn.functional.cross_entropy(model(shifted(xs[i])), ys[i])
            opt.zero_grad()
            loss.backward()
            opt.step()
            schedule.step()

    model.eval()
    with torch.no_grad():
        accuracy = (model(torch.from_numpy(held_x)).argmax(1).numpy() == held_y).mean()
    print(f"{accuracy:.2%} of {len(held_y)} held-out images")
    save_file({k: v.contiguous() for k, v in model.state_dict().items()}, HERE / "digits.safetensors")
    np.savez_compressed(HERE / "images.npz", x=held_x, labels=held_y.astype(np.int64))


if __name__ == "__main__":
    main()

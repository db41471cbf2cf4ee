"""Prints the class of each image in a folder: python classify_images.py FOLDER"""

import pathlib
import sys

import torch
from torchvision.io import read_image
from torchvision.models import ResNet18_Weights, resnet18

WEIGHTS = ResNet18_Weights.DEFAULT
PREPROCESS = WEIGHTS.transforms()


def main(folder):
    model = resnet18(weights=WEIGHTS).eval()
    for path in sorted(pathlib.Path(folder).glob("*.png")):
        with torch.no_grad():
            scores = model(PREPROCESS(read_image(str(path))).unsqueeze(0))[0].softmax(0)
        score, label = scores.max(0)
        print(f"{path.name}: {WEIGHTS.meta['categories'][label.item()]} ({score.item():.1%})")


if __name__ == "__main__":
    main(*sys.argv[1:])

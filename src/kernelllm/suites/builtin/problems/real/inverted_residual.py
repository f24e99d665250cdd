"""An inverted residual of a mobile network with squeeze and excitation, in float32."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, channels, wide):
        super().__init__()
        self.up, self.down = nn.Conv2d(channels, wide, 1), nn.Conv2d(wide, channels, 1)
        self.depthwise = nn.Conv2d(wide, wide, 5, padding=2, groups=wide)
        self.squeeze, self.excite = nn.Conv2d(wide, wide // 4, 1), nn.Conv2d(wide // 4, wide, 1)

    def forward(self, x):
        y = F.silu(self.depthwise(F.silu(self.up(x))))
        share = torch.sigmoid(self.excite(F.silu(self.squeeze(y.mean((2, 3), keepdim=True)))))
        return x + self.down(y * share)


batch = 32
channels = 40
wide = 240
side = 28


def get_inputs():
    return [torch.randn(batch, channels, side, side)]


def get_init_inputs():
    return [channels, wide]

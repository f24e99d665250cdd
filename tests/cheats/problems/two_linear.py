import torch
import torch.nn as nn
batch = 32
fi = 64
fo = 48
class Model(nn.Module):
    def __init__(self, fi, fo):
        super().__init__()
        self.first = nn.Linear(fi, fi, bias=False)
        self.second = nn.Linear(fi, fo, bias=False)
    def forward(self, x):
        return self.second(self.first(x))
def get_inputs():
    return [torch.randn(batch, fi)]
def get_init_inputs():
    return [fi, fo]

"""Functions of a file that refuse tensors which its kernels were not written for."""

from __future__ import annotations

CHECK = '''
def check(name, tensor, dtypes, shape, device=None):
    """Refuse a tensor that the kernels were not written for; a size of None may be any."""
    fits = torch.is_tensor(tensor) and tensor.dtype in dtypes and device in (None, tensor.device)
    fits = fits and tensor.numel() < 2**31  # offsets have 32 bits
    if fits and tensor.is_neg():
        raise ValueError(f"{name}: its memory holds the opposite of its values; give {name}.resolve_neg()")
    if not fits or len(shape) != tensor.dim() or any([n not in (None, m) for n, m in zip(shape, tensor.shape)]):
        came = (tensor.dtype, tuple(tensor.shape), tensor.device) if torch.is_tensor(tensor) else type(tensor)
        raise ValueError(f"{name}: the kernels take {dtypes}, {shape}, {device or 'any device'}; got {came}")
'''
INFERENCE_ONLY = '''
class InferenceOnly(torch.autograd.Function):
    forward = staticmethod(lambda ctx, results, *sources: results)  # handed on as they are
    @staticmethod
    def backward(ctx, *gradients):
        raise RuntimeError("ModelNew is for inference: its kernels compute no gradients; write it with --backward")
'''
APART = '''
def apart(name, written, *others):
    """Refuse another input in the memory that the kernels write into."""
    spans = []
    for t in (written, *others):
        length = 1 + sum([(n - 1) * s for n, s in zip(t.shape, t.stride())]) if t.numel() else 0
        spans.append((t.data_ptr(), t.data_ptr() + length * t.element_size()))
    if any([first < spans[0][1] and spans[0][0] < last for first, last in spans[1:]]):
        raise ValueError(f"{name}: the kernels write into it, and another input is in the same memory")
'''
STATE = '''
class Kept(dict):
    """What a layer holds: tensors as the kernels read them, and no layers or hooks that they would not call."""

    def __setitem__(self, name, value):
        old = self.get(name, value if isinstance(value, torch.nn.Module) else None)
        if torch.is_tensor(value):
            if value.is_neg() or value.is_conj() or (value.dim() == 1 and not value.is_contiguous()):
                raise ValueError(f"{name}: the kernels take vectors whose elements lie side by side; give a copy")
        elif not torch.is_tensor(old) and str(value) != str(old):
            raise NotImplementedError("The kernels call no layer inside of ModelNew, and no hook on it")
        super().__setitem__(name, value)


def keep_layers(model):
    """Refuse tensors that lie in memory otherwise, hooks on layers of the model, and others in their place."""
    for layer in list(model.modules()):
        layer._parameters, layer._buffers = Kept(layer._parameters), Kept(layer._buffers)
        layer._modules = Kept(layer._modules)
        if layer is not model:
            layer._forward_hooks, layer._forward_pre_hooks, layer._backward_hooks = Kept(), Kept(), Kept()
'''

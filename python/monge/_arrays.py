"""Arrays of NumPy, PyTorch, JAX and CuPy: how the library reads them, and where its results go.

PyTorch, JAX and CuPy are imported only where an argument is an array of theirs.
"""

from __future__ import annotations

import functools
import importlib
import math
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import _core, _shared
from ._costs import LABELS
from ._names import MOST, shown, whole
from ._versions import imported, refuse_old

Array = Any
"""An array of the caller's framework."""


_NAMES = {"e": "float16", "f": "float32", "d": "float64"}  # str(dtype) takes 4 us.


def as_numpy(field: str, value: Any) -> np.ndarray[Any, Any]:
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):  # NumPy would read the numbers under the mask.
        raise ValueError(f"{field}: has masked entries; must have none; a cost of inf forbids a pair")
    try:
        array = np.from_dlpack(value) if framework_of(value).root == "foreign" else np.asarray(value)
    except (ValueError, BufferError, RuntimeError) as error:  # For example rows of several lengths.
        raise ValueError(f"{field}: is no array of numbers: {error}") from None
    if array.ndim == 0 and array.dtype.kind not in "fiubc":
        if hasattr(value, "toarray"):
            raise TypeError(f"{field}: is sparse, of type {type(value).__name__}; must be dense, as by its toarray()")
        raise TypeError(f"{field}: is {shown(value)}; must be an array of numbers")
    return array


def _no_index(field: str, dtype: Any) -> TypeError:
    classes = "np.concatenate([labels_x, labels_y])" if field in LABELS else field  # Both clouds share the numbers.
    how = f"np.unique({classes}, return_inverse=True)[1] numbers classes of any type in their order"
    return TypeError(f"{field}: is of dtype {dtype}; must be whole numbers; {how}")


class NumPy:
    """NumPy, and all that NumPy can read: lists, buffers, data frames."""

    root = "numpy"
    """The name of the framework's module."""

    def read(self, field: str, value: Any, column_major: bool) -> Array:
        array = as_numpy(field, value)
        kind, size = array.dtype.kind, array.dtype.itemsize
        if kind == "f" and size in (4, 8):
            dtype = array.dtype.newbyteorder("=")
        elif kind == "f" and size == 2:
            dtype = np.dtype(np.float32)
        elif kind in "iub":
            dtype = np.dtype(np.float64)
        else:
            raise TypeError(f"{field}: is of dtype {array.dtype}; must be numbers, float32 or float64")
        array = array.astype(dtype, copy=False)
        usable = array.flags.aligned and _strides_fit([s // dtype.itemsize for s in array.strides], array.shape)
        if usable or (column_major and array.T.flags.c_contiguous):
            return array
        return np.ascontiguousarray(array)

    def read_small(self, field: str, value: Any) -> Array:
        """An array of small matrices: float16, bfloat16 and float32 as they are, other numbers in float32."""
        array = as_numpy(field, value)
        if array.dtype.kind not in "fiub" or array.dtype.itemsize > 8:
            raise TypeError(f"{field}: is of dtype {array.dtype}; must be numbers, which are computed in float32")
        is_small = array.dtype.kind == "f" and array.dtype.itemsize <= 4
        array = array.astype(array.dtype.newbyteorder("="), copy=False) if is_small else self._in_float32(field, array)
        fits = array.flags.aligned and _strides_fit([s // array.itemsize for s in array.strides], array.shape)
        return array if fits else np.ascontiguousarray(array)

    def read_index(self, field: str, value: Any) -> Array:
        array = as_numpy(field, value)
        if array.dtype.kind not in "iu":
            raise _no_index(field, array.dtype)
        return np.ascontiguousarray(array, dtype=np.int64)

    def shares(self, given: Any, array: Array) -> bool:
        """Whether `array`, read from the argument `given`, may lie in memory that the caller can change."""
        return array is given or array.base is not None or not isinstance(given, (list, tuple, np.ndarray))

    def copy(self, array: Array) -> Array:
        return array.copy(order="K")

    def same(self, one: Array, other: Array) -> bool:
        """Whether both are the same memory, read in the same way. Arrays of the host are compared by the library."""
        return one is other

    def version(self, array: Array) -> int | None:
        """The number of changes in place, where the framework counts them."""
        return None

    def dtype_name(self, array: Array) -> str:
        return _NAMES.get(array.dtype.char) or str(array.dtype)

    def device(self, array: Array) -> Any:
        return None

    def cuda_index(self, array: Array) -> int | None:
        return None

    def stream(self, index: int) -> int:
        return 0

    def allocator(self) -> tuple[Any, Any]:
        """The framework's functions for device memory: allocate(bytes, stream) returns an address on the current device,
        or 0 where there is not enough, and release(address) takes it back. None: the library has a pool of its own."""
        return None, None

    def empty(self, shape: tuple[int, ...], dtype: str, device: Any) -> Array:
        return np.empty(shape, dtype)

    def finish(self, buffer: Array, device: Any) -> Array:
        return buffer

    def scalar(self, value: float, dtype: str, device: Any) -> Array:
        return np.dtype(dtype).type(value)

    def array(self, values: Any, dtype: str, device: Any) -> Array:
        """Numbers, or an array of NumPy's, as a new array of this framework."""
        return np.asarray(values).astype(dtype)

    def on_host(self, array: Array) -> np.ndarray[Any, Any]:
        return np.asarray(array)

    def __reduce__(self) -> Any:
        return framework_named, (self.root,)

    def cast(self, array: Array, dtype: str) -> Array:
        return array.astype(dtype, copy=False)

    def _in_float32(self, field: str, array: Array) -> Array:
        """Numbers rounded to float32, whose range they must not leave."""
        most, sizes = float(np.finfo(np.float32).max), abs(array)
        if bool(((sizes > most) & (sizes < math.inf)).any()):
            raise ValueError(f"{field}: has entries above {most:.3g} in size; must be within float32, the arithmetic")
        return self.cast(array, "float32")

    def exp(self, array: Array) -> Array:
        return np.exp(array)

    def log(self, array: Array) -> Array:
        return np.log(array)

    def stack(self, arrays: list[Array]) -> Array:
        return np.stack(arrays)

    def csr(self, row_begin: Array, columns: Array, values: Array, shape: tuple[int, int]) -> Array:
        return imported("scipy.sparse", "sparse plans").csr_array((values, columns, row_begin), shape=shape)


class CuPy(NumPy):
    root = "cupy"

    def __init__(self, module: Any) -> None:
        self.module = module

    def read(self, field: str, value: Any, column_major: bool) -> Array:
        kind, size = value.dtype.kind, value.dtype.itemsize
        if kind not in "fiub":
            raise TypeError(f"{field}: is of dtype {value.dtype}; must be numbers, float32 or float64")
        dtype = "float64" if kind != "f" else "float32" if size == 2 else str(value.dtype)
        value = value.astype(dtype, copy=False)
        usable = _strides_fit([s // value.dtype.itemsize for s in value.strides], value.shape)
        if usable or (column_major and value.T.flags.c_contiguous):
            return value
        return self.module.ascontiguousarray(value)

    def read_small(self, field: str, value: Any) -> Array:
        if value.dtype.kind not in "fiub":
            raise TypeError(f"{field}: is of dtype {value.dtype}; must be numbers, which are computed in float32")
        value = value if value.dtype.kind == "f" and value.dtype.itemsize <= 4 else self._in_float32(field, value)
        fits = _strides_fit([s // value.dtype.itemsize for s in value.strides], value.shape)
        return value if fits else self.module.ascontiguousarray(value)

    def read_index(self, field: str, value: Any) -> Array:
        if value.dtype.kind not in "iu":
            raise _no_index(field, value.dtype)
        return self.module.ascontiguousarray(value, dtype="int64")

    def shares(self, given: Any, array: Array) -> bool:
        return bool(array.data.ptr == given.data.ptr)

    def copy(self, array: Array) -> Array:
        return array.copy()

    def same(self, one: Array, other: Array) -> bool:
        return _layout(one, one.data.ptr, one.strides) == _layout(other, other.data.ptr, other.strides)

    def device(self, array: Array) -> Any:
        return array.device

    def cuda_index(self, array: Array) -> int | None:
        return int(array.device.id)

    def stream(self, index: int) -> int:
        with self.module.cuda.Device(index):
            return int(self.module.cuda.get_current_stream().ptr)

    def empty(self, shape: tuple[int, ...], dtype: str, device: Any) -> Array:
        with device:
            return self.module.empty(shape, dtype)

    def array(self, values: Any, dtype: str, device: Any) -> Array:
        with device:
            return self.module.asarray(values, dtype)

    def on_host(self, array: Array) -> np.ndarray[Any, Any]:
        return self.module.asnumpy(array)  # type: ignore[no-any-return]

    def exp(self, array: Array) -> Array:
        return self.module.exp(array)

    def log(self, array: Array) -> Array:
        return self.module.log(array)

    def stack(self, arrays: list[Array]) -> Array:
        return self.module.stack(arrays)

    def csr(self, row_begin: Array, columns: Array, values: Array, shape: tuple[int, int]) -> Array:
        from cupyx.scipy.sparse import csr_matrix

        return csr_matrix((values, columns, row_begin), shape=shape)


class PyTorch(NumPy):
    root = "torch"

    def __init__(self, module: Any) -> None:
        self.module = module

    def _usable(self, field: str, value: Any) -> Array:
        if value.layout is not self.module.strided:
            sparse = ", or of layout torch.sparse_coo or torch.sparse_csr where sparse costs are taken"
            raise TypeError(f"{field}: is a tensor of layout {value.layout}; must be strided{sparse}")
        if value.is_nested or value.is_quantized:
            kind = "nested" if value.is_nested else "quantized"
            raise TypeError(f"{field}: is a {kind} tensor; must be a plain one, of float32 or float64")
        if value.device.type not in ("cpu", "cuda"):
            raise ValueError(f"{field}: lies on {value.device}; must be on the CPU or on CUDA")
        if self._is_traced(value):
            raise NotImplementedError(
                f"{field}: is under torch.func or in forward mode; monge.torch has functions for it"
            )
        return value.detach().resolve_neg()  # DLPack has no negative bit.

    def _is_traced(self, value: Any) -> bool:
        """Whether a transform of torch.func is at work, which wraps tensors, or the tensor has a tangent."""
        internals, forward_ad = self.module._C, self.module.autograd.forward_ad
        if internals._are_functorch_transforms_active():
            return True
        if forward_ad._current_level < 0 or not internals._is_fwd_grad_enabled():
            return False
        return forward_ad.unpack_dual(value).tangent is not None

    def read(self, field: str, value: Any, column_major: bool) -> Array:
        torch = self.module
        value = self._usable(field, value)
        if value.dtype in (torch.float16, torch.bfloat16):
            value = value.float()
        elif not value.dtype.is_floating_point:
            if value.dtype.is_complex:
                raise TypeError(f"{field}: is of dtype {value.dtype}; must be numbers, float32 or float64")
            value = value.double()
        if _strides_fit(value.stride(), value.shape) or (column_major and value.ndim == 2 and value.T.is_contiguous()):
            return value
        return value.contiguous()

    def read_small(self, field: str, value: Any) -> Array:
        if value.dtype.is_complex:
            raise TypeError(f"{field}: is of dtype {value.dtype}; must be numbers, which are computed in float32")
        value = self._usable(field, value)
        if value.dtype not in (self.module.float32, self.module.bfloat16, self.module.float16):
            value = self._in_float32(field, value)
        return value if _strides_fit(value.stride(), value.shape) else value.contiguous()

    def read_index(self, field: str, value: Any) -> Array:
        if value.dtype.is_floating_point or value.dtype.is_complex:
            raise _no_index(field, value.dtype)
        return self._usable(field, value).to(self.module.int64).contiguous()

    def shares(self, given: Any, array: Array) -> bool:
        return bool(array.data_ptr() == given.data_ptr())

    def copy(self, array: Array) -> Array:
        return array.clone()

    def same(self, one: Array, other: Array) -> bool:
        return _layout(one, one.data_ptr(), one.stride()) == _layout(other, other.data_ptr(), other.stride())

    def version(self, array: Array) -> int | None:
        return None if array.is_inference() else int(array._version)

    def dtype_name(self, array: Array) -> str:
        return str(array.dtype).removeprefix("torch.")

    def device(self, array: Array) -> Any:
        return array.device

    def cuda_index(self, array: Array) -> int | None:
        return array.device.index if array.device.type == "cuda" else None

    def stream(self, index: int) -> int:
        cuda = self.module.cuda  # Not initialised where only host tensors are solved on a GPU.
        return int(cuda.current_stream(index).cuda_stream) if cuda.is_initialized() else 0

    def allocator(self) -> tuple[Any, Any]:
        return (self._allocate, self._release) if self.module.cuda.is_initialized() else (None, None)

    def _allocate(self, size: int, stream: int) -> int:
        try:
            # caching_allocator_alloc() makes its device the current one first, as the library has done.
            return int(self.module._C._cuda_cudaCachingAllocator_raw_alloc(size, stream))
        except self.module.cuda.OutOfMemoryError:
            return 0

    def _release(self, memory: int) -> None:
        if not sys.is_finalizing():  # The process then gives all memory back.
            self.module.cuda.caching_allocator_delete(memory)

    def empty(self, shape: tuple[int, ...], dtype: str, device: Any) -> Array:
        return self.module.empty(shape, dtype=getattr(self.module, dtype), device=device)

    def scalar(self, value: float, dtype: str, device: Any) -> Array:
        return self.module.tensor(value, dtype=getattr(self.module, dtype), device=device)

    def array(self, values: Any, dtype: str, device: Any) -> Array:
        forward = np.array(values, order="C")  # PyTorch takes no negative strides.
        return self.module.tensor(forward, dtype=getattr(self.module, dtype), device=device)

    def on_host(self, array: Array) -> np.ndarray[Any, Any]:
        return array.detach().cpu().numpy()  # type: ignore[no-any-return]

    def cast(self, array: Array, dtype: str) -> Array:
        return array.to(getattr(self.module, dtype))

    def exp(self, array: Array) -> Array:
        return array.exp()

    def log(self, array: Array) -> Array:
        return array.log()

    def stack(self, arrays: list[Array]) -> Array:
        return self.module.stack(arrays)

    def csr(self, row_begin: Array, columns: Array, values: Array, shape: tuple[int, int]) -> Array:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyTorch warns that sparse tensors are in beta state.
            return self.module.sparse_csr_tensor(row_begin, columns, values, shape, check_invariants=False)


class Jax(NumPy):
    """JAX. Its arrays are immutable, so results are written to host memory, which JAX takes over, on the CPU without a
    copy."""

    root = "jax"

    def __init__(self, module: Any) -> None:
        self.module = module

    def _known(self, field: str, value: Any) -> Array:
        if isinstance(value, self.module.core.Tracer):
            raise NotImplementedError(
                f"{field}: is traced by JAX; monge.jax has functions for it, not for exact plans, whose derivatives "
                "are in monge.torch"
            )
        return value

    def read(self, field: str, value: Any, column_major: bool) -> Array:
        value = self._known(field, value)
        if str(value.dtype) == "bfloat16":
            value = value.astype("float32")
        if self.cuda_index(value) is None:
            return super().read(field, value, column_major)
        if not self.module.numpy.issubdtype(value.dtype, self.module.numpy.floating) or str(value.dtype) == "float16":
            value = value.astype("float32")
        return value.block_until_ready()

    def read_small(self, field: str, value: Any) -> Array:
        return super().read_small(field, self._known(field, value))

    def read_index(self, field: str, value: Any) -> Array:
        return super().read_index(field, self._known(field, value))

    def shares(self, given: Any, array: Array) -> bool:
        return False  # Nobody can change it.

    def copy(self, array: Array) -> Array:
        return array

    def device(self, array: Array) -> Any:
        return next(iter(array.devices())) if hasattr(array, "devices") else None

    def cuda_index(self, array: Array) -> int | None:
        device = self.device(array)
        return None if device is None or device.platform == "cpu" else int(device.local_hardware_id)

    def empty(self, shape: tuple[int, ...], dtype: str, device: Any) -> Array:
        size, alignment = math.prod(shape) * np.dtype(dtype).itemsize, 64  # JAX copies memory of less.
        memory = np.empty(size + alignment, np.uint8)
        begin = -memory.ctypes.data % alignment
        return memory[begin : begin + size].view(dtype).reshape(shape)

    def finish(self, buffer: Array, device: Any) -> Array:
        return self.module.device_put(buffer, device)

    def scalar(self, value: float, dtype: str, device: Any) -> Array:
        return self.module.device_put(np.asarray(value, dtype), device)

    def array(self, values: Any, dtype: str, device: Any) -> Array:
        return self.module.device_put(np.array(values, dtype), device)

    def stack(self, arrays: list[Array]) -> Array:
        return self.module.numpy.stack(arrays)

    def exp(self, array: Array) -> Array:
        return self.module.numpy.exp(array)

    def log(self, array: Array) -> Array:
        return self.module.numpy.log(array)


class Foreign(NumPy):
    """Other arrays with DLPack or the CUDA array interface. On a GPU the library reads them itself; results are arrays
    of NumPy."""

    root = "foreign"

    def read(self, field: str, value: Any, column_major: bool) -> Array:
        return super().read(field, value, column_major) if self.cuda_index(value) is None else value

    def read_small(self, field: str, value: Any) -> Array:
        return super().read_small(field, value) if self.cuda_index(value) is None else value

    def read_index(self, field: str, value: Any) -> Array:
        return super().read_index(field, value) if self.cuda_index(value) is None else value

    def shares(self, given: Any, array: Array) -> bool:
        return isinstance(array, np.ndarray)  # The library alone can read one of a GPU.

    def dtype_name(self, array: Array) -> str:
        if isinstance(array, np.ndarray):
            return super().dtype_name(array)
        return "float32" if "32" in str(getattr(array, "dtype", "")) else "float64"

    def on_host(self, array: Array) -> np.ndarray[Any, Any]:
        return np.asarray(array.tolist())

    def cuda_index(self, array: Array) -> int | None:
        kind, index = array.__dlpack_device__() if hasattr(array, "__dlpack_device__") else (2, 0)
        return int(index) if kind in (2, 13) else None


_numpy = NumPy()
_frameworks: dict[str, NumPy] = {"numpy": _numpy, "foreign": Foreign()}
_with_module: dict[str, Callable[[Any], NumPy]] = {"torch": PyTorch, "jax": Jax, "cupy": CuPy}
_of_type: dict[type, NumPy] = {np.ndarray: _numpy}  # The types of arrays seen so far.


def framework_named(root: str) -> NumPy:
    if root not in _frameworks:
        module = importlib.import_module(root)
        if root == "cupy":
            refuse_old("cupy", "arrays of CuPy", module.__version__)
        _frameworks[root] = _with_module[root](module)
    return _frameworks[root]


def framework_of(value: Any) -> NumPy:
    """The framework of an array."""
    known = _of_type.get(type(value))
    if known is not None:
        return known
    root = type(value).__module__.partition(".")[0]
    root = "jax" if root == "jaxlib" else root
    if root in _with_module:
        return _of_type.setdefault(type(value), framework_named(root))
    if isinstance(value, np.ndarray):
        return _numpy
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):  # A subclass by the caller.
        return framework_named("torch")
    foreign = hasattr(value, "__dlpack__") or hasattr(value, "__cuda_array_interface__")
    return framework_named("foreign") if foreign and not hasattr(value, "__array__") else _numpy


def read(field: str, value: Any, column_major: bool = False) -> Array:
    """The array as the library takes it: float32 or float64, row-major, or with `column_major` column-major, too.

    float16 and bfloat16 become float32, which holds each of their numbers; whole numbers and bool become float64. An
    array of the right type with contiguous rows is not copied.
    """
    return framework_of(value).read(field, value, column_major)


def read_matrix(field: str, value: Any, what: str, column_major: bool = False) -> Array:
    """:func:`read` for an array of two dimensions; `what` is the shape that the error message asks for."""
    array = read(field, value, column_major)
    shape = getattr(array, "shape", None)  # The library checks an array on a GPU with DLPack alone.
    if shape is not None and len(shape) != 2:
        raise ValueError(f"{field}: has shape {tuple(shape)}; must be {what}")
    return array


def stack_of(field: str, given: Any) -> Any:
    """The argument of a batch, as an array of NumPy's where its own type cannot be taken apart."""
    is_opaque = isinstance(given, memoryview) or framework_of(given).root == "foreign"
    is_opaque = is_opaque or getattr(given, "is_nested", False) is True  # read() refuses it.
    return read(field, given) if is_opaque else given


def read_optional(field: str, value: Any) -> Array | None:
    if value is None:
        return None
    array = read(field, value)
    if 0 in getattr(array, "shape", ()):  # To the library an empty view is a missing argument.
        raise ValueError(f"{field}: has shape {tuple(array.shape)}; must not be empty")
    return array


def kept(given: Any, array: Array) -> Array:
    """`array`, read from the argument `given`, in memory that the caller does not change: a result may read it
    again."""
    framework = framework_of(given)
    return framework.copy(array) if framework.shares(given, array) else array


def kept_pair(given_x: Any, x: Array, given_y: Any, y: Array) -> tuple[Array, Array]:
    """:func:`kept` of both, as one array where they are the same memory: on a GPU the library looks no further."""
    framework = framework_of(given_x)
    one = kept(given_x, x)
    return one, one if framework is framework_of(given_y) and framework.same(x, y) else kept(given_y, y)


def kept_optional(field: str, value: Any, reader: Callable[[str, Any], Array | None] = read_optional) -> Array | None:
    array = reader(field, value)
    return None if array is None else kept(value, array)


MOST_COPIED = 32 << 20
"""The size in bytes up to which a result has a copy of its cost matrix."""


class Fingerprint:
    """Entries of a matrix that is too large for a copy: some of each row and of each column, and the diagonal. They
    show whether the caller has changed the matrix. On a GPU the counter of PyTorch takes their place."""

    def __init__(self, field: str, matrix: Array) -> None:
        self._field, self._matrix, self._framework = field, matrix, framework_of(matrix)
        self._version = self._framework.version(matrix)
        has_entries = self._version is None or self._framework.cuda_index(matrix) is None
        self._entries = self._read() if has_entries else None

    @staticmethod
    def of(field: str, given: Any, matrix: Array) -> Fingerprint | None:
        """None for a matrix that nobody can change."""
        return Fingerprint(field, matrix) if framework_of(given).shares(given, matrix) else None

    def require_unchanged(self) -> None:
        """RuntimeError if the caller has changed the matrix."""
        is_old = self._framework.version(self._matrix) != self._version
        if is_old or self._entries is not None and not np.array_equal(self._read(), self._entries, equal_nan=True):
            raise RuntimeError(
                f"{self._field}: was changed in place since the solve, and the plan is computed from it; "
                f"a result copies costs of up to {MOST_COPIED >> 20} MiB"
            )

    def _read(self) -> np.ndarray[Any, Any]:
        device = self._framework.device(self._matrix)
        at = (self._framework.array(k, "int64", device) for k in _spread(*self._matrix.shape))
        return on_host(self._matrix[tuple(at)])


@functools.lru_cache(maxsize=8)
def _spread(n: int, m: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Places in all rows and columns of a matrix, up to 32768 of each: those of the diagonal, and as many elsewhere."""
    longer, most = max(n, m), 1 << 15
    k = np.arange(min(longer, most)) * longer // min(longer, most)
    anywhere = (k * 0x9E3779B1 + 0x7F4A7C15) % (min(n, m) * longer)
    rows, columns = (k, anywhere % m) if n >= m else (anywhere % n, k)
    return np.concatenate([k % n, rows]), np.concatenate([k % m, columns])


def _layout(array: Array, address: int, strides: Any) -> tuple[Any, ...]:
    return address, tuple(array.shape), tuple(strides), array.dtype


def on_host(array: Array) -> np.ndarray[Any, Any]:
    """The array in NumPy; a copy where it lies on a device."""
    return framework_of(array).on_host(array)


def read_index(field: str, value: Any) -> Array | None:
    """Whole numbers as int64."""
    return None if value is None else framework_of(value).read_index(field, value)


@dataclass(frozen=True)
class Place:
    """Where results go: the caller's framework, dtype and device."""

    framework: NumPy
    dtype: str
    device: Any
    cuda_index: int | None

    @staticmethod
    def of(given: Any, *read_arrays: Array, device: Any = None) -> Place:
        """The framework and device of the array `given`; float64 and CUDA if any array of `read_arrays` has them.

        `device` is where to solve, for arrays in host memory.
        """
        dtype = "float32"
        on_cuda = None
        for array in read_arrays:
            framework = framework_of(array)
            if framework.dtype_name(array) != "float32":
                dtype = "float64"
            if on_cuda is None:
                on_cuda = framework.cuda_index(array)
        framework = framework_of(given)
        if device is not None:
            on_cuda = asked_device(device, on_cuda)
        return Place(framework, dtype, framework.device(given), on_cuda)

    def session(self, threads: int | None) -> _core.Session:
        """A context of the library on this device; on CUDA it uses the framework's current stream."""
        shared = _shared.shared.get()
        if shared is not None:
            if self.cuda_index not in (None, shared.cuda_index):
                there = shared.session.device
                raise ValueError(f"device: is cuda:{self.cuda_index}; must be {there}, as of monge.distributed")
            if self.cuda_index is not None and self.framework.stream(self.cuda_index) != shared.stream:
                raise ValueError("stream: is another than that of monge.distributed; must be the same")
            if threads is not None:
                raise ValueError(f"n_threads: is {threads}; must be given to monge.distributed")
            return shared.session
        if self.cuda_index is None:
            return _core.cpu_session(0 if threads is None else whole("n_threads", threads, 0, MOST))
        return _cuda_session(self.cuda_index, self.framework.stream(self.cuda_index), *self.framework.allocator())

    @property
    def solves_on_cuda(self) -> bool:
        shared = _shared.shared.get()
        return (self if shared is None else shared).cuda_index is not None

    def empty(self, *shape: int) -> Array:
        """A buffer for the library to write."""
        return self.framework.empty(shape, self.dtype, self.device)

    def empty_index(self, *shape: int) -> Array:
        return self.framework.empty(shape, "int64", self.device)

    def finish(self, buffer: Array) -> Array:
        """The buffer as an array of the caller's framework."""
        return self.framework.finish(buffer, self.device)

    def scalar(self, value: float) -> Array:
        return self.framework.scalar(value, self.dtype, self.device)

    def array(self, values: Any) -> Array:
        """Numbers of the host as an array of the caller's framework."""
        return self.framework.array(values, self.dtype, self.device)

    def index_array(self, values: Any) -> Array:
        return self.framework.array(values, "int64", self.device)


def asked_device(device: Any, on_cuda: int | None) -> int | None:
    """The CUDA device that `device` names, None for the CPU. Arrays on the device `on_cuda` must stay there."""
    kind, _, number = str(device).partition(":")
    if kind not in ("cpu", "cuda") or not (number.isdecimal() or number == ""):
        raise ValueError(f"device: is {shown(device)}; must be 'cpu', 'cuda' or 'cuda:' and a number")
    index = None if kind == "cpu" else int(number or on_cuda or 0)
    if on_cuda is not None and index != on_cuda:
        raise ValueError(f"device: is {str(device)!r}; must be 'cuda:{on_cuda}', where the arrays lie")
    return index


def cuda_place(index: int | None) -> tuple[int, int, Any, Any]:
    """A CUDA device with stream and allocator: PyTorch's where PyTorch uses CUDA. None: the current one."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return index or 0, 0, None, None
    if index is None:
        index = int(torch.cuda.current_device())
    framework = framework_named("torch")
    return index, framework.stream(index), *framework.allocator()


@functools.lru_cache(maxsize=64)
def _cuda_session(index: int, stream: int, allocate: Any, release: Any) -> _core.Session:
    return _core.cuda_session(index, stream, allocate, release)


def _strides_fit(strides: Any, shape: Any) -> bool:
    """Whether the library reads an array of these strides, in elements, where it lies."""
    if len(shape) < 2:
        return all(size <= 1 or stride >= 1 for stride, size in zip(strides, shape))
    if shape[-1] > 1 and strides[-1] != 1:
        return False
    least = shape[-1]
    for stride, size in zip(reversed(strides[:-1]), reversed(shape[:-1])):
        if size > 1:
            if stride < least:
                return False
            least = stride * size
    return True

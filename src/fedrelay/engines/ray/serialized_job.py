"""Jobs as bytes, to send them to other processes.

Arrays and tensors are stored beside the pickle, not inside it. If a packed job is in shared memory, such as Ray's
object store, a worker that unpacks it uses the data in place instead of copying them.
"""

from __future__ import annotations

import io
import pickle
import platform
import uuid
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedrelay.data.evaluation_samples import convert_now
from fedrelay.errors import EngineError
from fedrelay.local.trainer import TrainingJob

Bytes = NDArray[np.uint8]


def software() -> dict[str, str]:
    """The versions that must be equal on all machines, so that results are the same bits."""
    return {name: version(name) for name in ("fedrelay", "torch", "numpy")}


@dataclass(frozen=True)
class SerializedJob:
    """Data, model and settings as bytes."""

    body: Bytes
    buffers: Sequence[Bytes]
    software: Mapping[str, str] = field(default_factory=software)
    key: str = field(default_factory=lambda: uuid.uuid4().hex)
    """Unique for every packed job."""

    def unpack(self) -> TrainingJob:
        """The job, using the buffers in place.

        Raises:
            EngineError: The versions of the software differ from the sender's, or code is missing here.
        """
        other = {name: found for name, found in software().items() if found != self.software[name]}
        if other:
            pairs = ", ".join(f"{name} {found} instead of {self.software[name]}" for name, found in other.items())
            raise EngineError(f"{platform.node()} has {pairs}; install the same versions on all machines")
        try:
            job: TrainingJob = pickle.loads(self.body.data, buffers=self.buffers)
        except (ImportError, AttributeError) as error:
            raise EngineError(
                f"{platform.node()} lacks code that the model or the data need ({error}); install it on all machines, "
                "or define it in the script that calls fedrelay.run"
            ) from None
        return job


def pack(job: TrainingJob) -> SerializedJob:
    """Pack a job. Code defined in a script is included; other code must be installed where it is unpacked."""
    from ray import cloudpickle

    class Packer(cloudpickle.CloudPickler):  # type: ignore[misc]
        """Stores plain tensors as arrays. Tensors of modules may share memory, so PyTorch saves these."""

        def reducer_override(self, value: Any) -> Any:
            if isinstance(value, nn.Module):
                saved = io.BytesIO()
                torch.save(value, saved, pickle_module=cloudpickle)
                return module_from, (saved.getvalue(),)
            if type(value) is Tensor and value.device.type == "cpu" and value.is_contiguous():
                return tensor_from, (bytes_of(value), value.dtype, value.shape)
            return super().reducer_override(value)

    # Converted once here, not by every worker.
    convert_now(job.federation)
    body, buffers = io.BytesIO(), list[pickle.PickleBuffer]()
    try:
        Packer(body, protocol=5, buffer_callback=buffers.append).dump(job)
    except (TypeError, AttributeError, RuntimeError, pickle.PicklingError) as error:
        reason = str(error).strip().splitlines()[0]
        raise EngineError(f"the model or the data cannot be sent to other processes: {reason}") from None
    return SerializedJob(
        np.frombuffer(body.getvalue(), np.uint8), [np.frombuffer(buffer.raw(), np.uint8) for buffer in buffers]
    )


def module_from(saved: bytes) -> nn.Module:
    """Load a module into its own memory."""
    module: nn.Module = torch.load(io.BytesIO(saved), weights_only=False)  # it comes from `pack` alone
    return module


def bytes_of(tensor: Tensor) -> Bytes:
    """The memory of a contiguous tensor, whatever its type."""
    return tensor.detach().reshape(-1).view(torch.uint8).numpy()


def tensor_from(raw: Bytes, dtype: torch.dtype, shape: Sequence[int]) -> Tensor:
    """A tensor over the same memory, which may be read-only."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        return torch.from_numpy(raw).view(dtype).reshape(shape)

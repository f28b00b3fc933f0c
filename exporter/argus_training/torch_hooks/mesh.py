"""Device meshes: `init_device_mesh` tells how the ranks are laid out. Only its numbers are kept."""

from __future__ import annotations

import functools
from typing import Any

from argus_training.hook import Hook


class MeshHook(Hook):
    name = "mesh"

    def attach(self, torch: Any) -> None:
        if not torch.distributed.is_available():
            return
        from torch.distributed import device_mesh

        original = device_mesh.init_device_mesh

        @functools.wraps(original)
        def init_device_mesh(*args: Any, **kwargs: Any) -> Any:
            mesh = original(*args, **kwargs)
            try:
                if self.alive and mesh.mesh_dim_names:
                    self.observer.note_mesh(tuple(mesh.mesh_dim_names), tuple(mesh.mesh.shape))
            except Exception as error:
                self.failed(error)
            return mesh

        self.replace(device_mesh, "init_device_mesh", init_device_mesh)
        if getattr(torch.distributed, "init_device_mesh", None) is original:
            self.replace(torch.distributed, "init_device_mesh", init_device_mesh)

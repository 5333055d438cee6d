# Copyright Spack Project Developers. See COPYRIGHT file for details.
#
# SPDX-License-Identifier: (Apache-2.0 OR MIT)

from spack.package import *
from spack_repo.builtin.build_systems.cmake import CMakePackage
from spack_repo.builtin.build_systems.cuda import CudaPackage


class Monge(CMakePackage, CudaPackage):
    """Optimal transport on CPUs and NVIDIA GPUs: a C++20 library and a command line program."""

    url = "https://pypi.org/packages/source/m/monge/monge-0.1.0.tar.gz"

    license("Apache-2.0")

    version("0.1.0", sha256="0000000000000000000000000000000000000000000000000000000000000000")

    variant("shared", default=True, description="Build a shared library")
    variant("mpi", default=False, description="Several processes of the program")

    depends_on("cxx", type="build")
    depends_on("cmake@3.22:", type="build")
    depends_on("eigen@3.4:", type="build")
    depends_on("cli11@2.1:", type="build")
    depends_on("nlohmann-json@3.11:", type="build")
    depends_on("highway@1.0:")
    depends_on("fmt@9.1:")
    depends_on("mpi", when="+mpi")

    def cmake_args(self):
        arguments = [
            self.define_from_variant("BUILD_SHARED_LIBS", "shared"),
            self.define_from_variant("MONGE_MPI", "mpi"),
            self.define_from_variant("MONGE_CUDA", "cuda"),
            self.define("MONGE_TESTS", False),
        ]
        if self.spec.satisfies("+cuda") and "none" not in self.spec.variants["cuda_arch"].value:
            arguments.append(self.define("CMAKE_CUDA_ARCHITECTURES", list(self.spec.variants["cuda_arch"].value)))
        return arguments

#!/usr/bin/env bash
set -euo pipefail
cmake -G Ninja -S . -B build-library $CMAKE_ARGS -DBUILD_SHARED_LIBS=ON -DMONGE_TESTS=OFF -DMONGE_MPI=OFF -DMONGE_CUDA=OFF
cmake --build build-library
cmake --install build-library --prefix "$PREFIX"

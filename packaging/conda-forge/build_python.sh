#!/usr/bin/env bash
set -euo pipefail
"$PYTHON" -m pip install . -vv --no-deps --no-build-isolation -C cmake.define.MONGE_CUDA=OFF

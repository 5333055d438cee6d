// The version of these headers. monge::version() returns the version of the library. CMakeLists.txt and pyproject.toml
// read this file.
#pragma once

#define MONGE_VERSION_MAJOR 0
#define MONGE_VERSION_MINOR 1
#define MONGE_VERSION_PATCH 0
// A number that orders versions: 0.1.0 is 100, 1.2.3 is 10203.
#define MONGE_VERSION (MONGE_VERSION_MAJOR * 10000 + MONGE_VERSION_MINOR * 100 + MONGE_VERSION_PATCH)

// Disables instruction sets; include before hwy/foreach_target.h. SSSE3 and AVX3_DL gain nothing over SSE4 and AVX3 and
// cost build time. Vectors of unknown length (SVE, RVV) cannot form register tiles or packs.
#pragma once
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)

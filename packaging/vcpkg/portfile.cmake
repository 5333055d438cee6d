vcpkg_download_distfile(archive
    URLS "https://pypi.org/packages/source/m/monge/monge-${VERSION}.tar.gz"
    FILENAME "monge-${VERSION}.tar.gz"
    SHA512 00000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000)
vcpkg_extract_source_archive(source ARCHIVE "${archive}")
vcpkg_check_features(OUT_FEATURE_OPTIONS options FEATURES cuda MONGE_CUDA tools MONGE_CLI)
vcpkg_cmake_configure(SOURCE_PATH "${source}" OPTIONS ${options} -DMONGE_TESTS=OFF -DMONGE_MPI=OFF)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(CONFIG_PATH lib/cmake/monge)
vcpkg_fixup_pkgconfig()
if("tools" IN_LIST FEATURES)
    vcpkg_copy_tools(TOOL_NAMES monge AUTO_CLEAN)
endif()
file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/debug/include" "${CURRENT_PACKAGES_DIR}/debug/share")
vcpkg_install_copyright(FILE_LIST "${source}/LICENSE" "${source}/THIRD_PARTY.md" "${source}/LICENSES/MPL-2.0.txt")

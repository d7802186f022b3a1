# What cpack makes of the installation: kpd and kpd-mpi, each as a .deb and a .tar.gz. kpd-train is in no package: it is linked with the torch
# of the machine that built it.
#
#   cmake --build build/release --target kpd_installed && cpack --preset release        # into build/release/packages
set(CPACK_PACKAGE_NAME kpd)
set(CPACK_PACKAGE_VENDOR "kpd contributors")
set(CPACK_PACKAGE_CONTACT "kpd contributors")
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_PACKAGE_DIRECTORY ${PROJECT_BINARY_DIR}/packages)
set(CPACK_GENERATOR "DEB;TGZ")
set(CPACK_STRIP_FILES ON)
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_CURRENT_LIST_DIR}/package/folders.cmake)
set(CPACK_PROJECT_CONFIG_FILE ${CMAKE_CURRENT_LIST_DIR}/package/generator.cmake)
set(CPACK_COMPONENTS_ALL kpd)
if(TARGET kpd_comm)
  list(APPEND CPACK_COMPONENTS_ALL mpi)
endif()
set(CPACK_COMPONENTS_GROUPING IGNORE)

set(CPACK_ARCHIVE_COMPONENT_INSTALL ON)
set(kpd_archive ${PROJECT_VERSION}-${CMAKE_SYSTEM_NAME}-${CMAKE_SYSTEM_PROCESSOR})
string(TOLOWER ${kpd_archive} kpd_archive)
set(CPACK_PACKAGE_FILE_NAME kpd-${kpd_archive})
set(CPACK_ARCHIVE_KPD_FILE_NAME kpd-${kpd_archive})
set(CPACK_ARCHIVE_MPI_FILE_NAME kpd-mpi-${kpd_archive})

set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_KPD_PACKAGE_NAME kpd)
set(CPACK_COMPONENT_KPD_DESCRIPTION "compressed gradients within stated bounds, and language models on CPUs
The program kpd compresses gradients and model updates to 0.05 to 8 bits per
number and averages them within measured bounds; it evaluates, runs and serves
language models (GGUF, Hugging Face folders) on CPUs.
.
With the C++ and C libraries, their headers, man pages, and completions for
bash and zsh. A project that links the libraries needs the suggested packages.")
# What find_package(kpd) looks for.
set(CPACK_DEBIAN_KPD_PACKAGE_SUGGESTS "g++, cmake, pkg-config, libhwy-dev, zlib1g-dev, libpcre2-dev, kpd-mpi")
set(CPACK_DEBIAN_MPI_PACKAGE_NAME kpd-mpi)
set(CPACK_COMPONENT_MPI_DESCRIPTION "kpd with the MPI engine
The program kpd-mpi, which `kpd mean --comm mpi` runs, and the library kpd::comm.")
set(CPACK_DEBIAN_MPI_PACKAGE_DEPENDS "kpd (= ${PROJECT_VERSION})")
set(CPACK_DEBIAN_MPI_PACKAGE_RECOMMENDS openmpi-bin)
set(CPACK_DEBIAN_MPI_PACKAGE_SUGGESTS libopenmpi-dev)
include(CPack)

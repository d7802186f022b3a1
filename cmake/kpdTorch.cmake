# Defines the imported target kpd::torch from the folder KPD_TORCH_DIR of an installed torch package (any torch >= 2.4, also
# CPU-only). Used by kpd's own build and, installed, by find_package(kpd COMPONENTS train).
#
# Only libtorch_cpu.so and libc10.so are linked: the wheel's own TorchConfig.cmake would ask for a CUDA toolkit.
if(TARGET kpd::torch)
  return()
endif()
if(NOT KPD_TORCH_DIR)
  # scripts/get_torch.sh puts it here.
  file(GLOB kpd_torch_venv ${CMAKE_SOURCE_DIR}/build/torch-venv/lib/python3*/site-packages/torch)
  set(KPD_TORCH_DIR "${kpd_torch_venv}")
endif()
set(kpd_torch_problem "")
if(NOT EXISTS "${KPD_TORCH_DIR}/lib/libtorch_cpu.so" OR NOT EXISTS "${KPD_TORCH_DIR}/include/torch/csrc/api/include/torch/torch.h")
  set(kpd_torch_problem "no torch in '${KPD_TORCH_DIR}': expected lib/libtorch_cpu.so and include/torch/csrc/api/include/torch/torch.h there. Run \
scripts/get_torch.sh, or set KPD_TORCH_DIR to the folder that `python3 -c 'import torch; print(torch.__path__[0])'` prints")
else()
  file(STRINGS "${KPD_TORCH_DIR}/lib/libc10.so" kpd_torch_cxx11 REGEX "_ZN.*c10.*cxx11" LIMIT_COUNT 1)
  file(STRINGS "${KPD_TORCH_DIR}/include/torch/csrc/api/include/torch/version.h" kpd_torch_version_lines
       REGEX "#define TORCH_VERSION_(MAJOR|MINOR) ")
  string(REGEX MATCHALL "[0-9]+" kpd_torch_version "${kpd_torch_version_lines}")
  list(JOIN kpd_torch_version "." kpd_torch_version)
  if(kpd_torch_version AND kpd_torch_version VERSION_LESS 2.4)
    set(kpd_torch_problem "torch ${kpd_torch_version} in ${KPD_TORCH_DIR} is too old: 2.4 or later is needed")
  elseif(NOT kpd_torch_cxx11)
    set(kpd_torch_problem "torch in ${KPD_TORCH_DIR} was built with the C++ string ABI from before C++11, which nothing else on this \
system uses: take a torch built with the new one (on PyPI, 2.7 and later)")
  endif()
endif()
if(kpd_torch_problem)
  if(kpd_inside_package)  # the config file reports it
    return()
  endif()
  message(FATAL_ERROR "kpd::train: ${kpd_torch_problem}")
endif()

add_library(kpd::torch_c10 SHARED IMPORTED)
set_target_properties(kpd::torch_c10 PROPERTIES IMPORTED_LOCATION "${KPD_TORCH_DIR}/lib/libc10.so")
add_library(kpd::torch_cpu SHARED IMPORTED)
set_target_properties(kpd::torch_cpu PROPERTIES IMPORTED_LOCATION "${KPD_TORCH_DIR}/lib/libtorch_cpu.so")
add_library(kpd::torch INTERFACE IMPORTED)
target_include_directories(kpd::torch SYSTEM INTERFACE "${KPD_TORCH_DIR}/include"
                           "${KPD_TORCH_DIR}/include/torch/csrc/api/include")
target_link_libraries(kpd::torch INTERFACE kpd::torch_cpu kpd::torch_c10)
# The wheel's libtorch_cpu.so needs the CUDA run-time libraries to load; the linker only has to find them.
file(GLOB kpd_torch_cuda LIST_DIRECTORIES true "${KPD_TORCH_DIR}/../nvidia/*/lib")
foreach(folder ${kpd_torch_cuda})
  get_filename_component(folder "${folder}" REALPATH)
  target_link_options(kpd::torch INTERFACE "LINKER:-rpath-link,${folder}")
endforeach()

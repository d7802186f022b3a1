# KPD_SANITIZE and KPD_BUILD_FUZZ instrument everything below this folder. They are flags of the folder, not of a target's interface,
# so nothing of them is installed.
if(KPD_SANITIZE)
  add_compile_options(-fsanitize=${KPD_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${KPD_SANITIZE})
endif()
if(KPD_BUILD_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "KPD_BUILD_FUZZ needs clang with libFuzzer (Debian: clang-14 and libclang-rt-14-dev); use the preset fuzz")
  endif()
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
if(KPD_SANITIZE OR KPD_BUILD_FUZZ)
  add_compile_definitions(KPD_FEWER_TARGETS)  # src/base/targets.h
endif()

# Read by cpack for each generator. An archive has one folder, which may lie anywhere; a .deb has the folders of the system.
if(CPACK_GENERATOR STREQUAL "TGZ")
  set(CPACK_COMPONENT_INCLUDE_TOPLEVEL_DIRECTORY ON)
elseif(CPACK_GENERATOR STREQUAL "DEB")
  # Without dpkg-shlibdeps cpack would make a .deb that depends on nothing, and say so in passing.
  foreach(tool dpkg-shlibdeps dpkg-deb file)
    find_program(found_${tool} ${tool})
    if(NOT found_${tool})
      message(FATAL_ERROR "a .deb needs ${tool} (Debian: apt-get install dpkg-dev file); `cpack -G TGZ` makes the .tar.gz alone")
    endif()
  endforeach()
endif()

# Uses ccache where it is installed and the caller chose no launcher.
find_program(KPD_CCACHE ccache)
get_filename_component(KPD_CCACHE_BASE ${CMAKE_CURRENT_LIST_DIR} DIRECTORY)
mark_as_advanced(KPD_CCACHE)
if(KPD_CCACHE)
  foreach(language C CXX)
    if(NOT DEFINED CMAKE_${language}_COMPILER_LAUNCHER)
      # The sloppiness is what ccache asks for to handle precompiled headers at all; no file here has __TIME__. With relative paths two
      # build folders share what they compile in the same way, headers too.
      set(CMAKE_${language}_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros
                                              CCACHE_BASEDIR=${KPD_CCACHE_BASE} ${KPD_CCACHE})
    endif()
  endforeach()
endif()

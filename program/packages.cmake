# Installs what belongs beside the library and the program, and packs all of it.

# The program's manual pages, and what completes its words in shells, are made of its own table of commands.
if(TARGET ringgrad_program)
  install(CODE "set(program ${CMAKE_CROSSCOMPILING_EMULATOR} \"$<TARGET_FILE:ringgrad_program>\")" COMPONENT program)
  install(CODE [[
    cmake_policy(VERSION 3.24)
    set(pages "${CMAKE_CURRENT_LIST_DIR}/pages")
    file(REMOVE_RECURSE "${pages}")
    file(MAKE_DIRECTORY "${pages}/bash" "${pages}/zsh" "${pages}/fish")
    execute_process(COMMAND ${program} man "${pages}/man1" COMMAND_ERROR_IS_FATAL ANY OUTPUT_QUIET)
    foreach(file bash/ringgrad zsh/_ringgrad fish/ringgrad.fish)
      get_filename_component(shell "${file}" DIRECTORY)
      execute_process(COMMAND ${program} completion ${shell} COMMAND_ERROR_IS_FATAL ANY OUTPUT_FILE "${pages}/${file}")
    endforeach()
    set(share "${CMAKE_INSTALL_PREFIX}/share")
    file(INSTALL "${pages}/man1" DESTINATION "${share}/man")
    file(INSTALL "${pages}/bash/ringgrad" DESTINATION "${share}/bash-completion/completions")
    file(INSTALL "${pages}/zsh/_ringgrad" DESTINATION "${share}/zsh/site-functions")
    file(INSTALL "${pages}/fish/ringgrad.fish" DESTINATION "${share}/fish/vendor_completions.d")
  ]] COMPONENT program)
endif()
foreach(component library program)
  set(name_library libringgrad-dev)
  set(name_program ringgrad)
  install(FILES LICENSE DESTINATION share/doc/${name_${component}} RENAME copyright COMPONENT ${component})
  install(FILES CHANGELOG.md DESTINATION share/doc/${name_${component}} COMPONENT ${component})
endforeach()

# For who builds by other means: g++ -std=c++20 program.cpp $(pkg-config --cflags --libs ringgrad).
if(NOT RINGGRAD_CUDA STREQUAL toolkit AND NOT RINGGRAD_STATIC)
  file(RELATIVE_PATH up /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
  if(RINGGRAD_ONEDNN_ON)
    list(TRANSFORM OpenMP_CXX_LIB_NAMES PREPEND -l OUTPUT_VARIABLE vendor)
    list(JOIN vendor " " vendor)
    set(vendor " -ldnnl ${vendor}")
  endif()
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    set(sound " -fno-tree-slp-vectorize")
  endif()
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/ringgrad.pc @ONLY CONTENT [[
prefix=${pcfiledir}/@up@
Name: ringgrad
Description: @PROJECT_DESCRIPTION@
Version: @PROJECT_VERSION@
Requires: fmt zlib libcrypto
Cflags: -I${prefix}/include -DRINGGRAD_WITHOUT_SLP@sound@
Libs: -L${prefix}/@CMAKE_INSTALL_LIBDIR@ -Wl,--whole-archive -lringgrad -Wl,--no-whole-archive -Wl,--as-needed@vendor@ -pthread
]])
  install(FILES ${PROJECT_BINARY_DIR}/ringgrad.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endif()

# As packages: cmake --preset package, build, then cpack -G "DEB;TGZ" in build/package. Training needs no compiler then, and
# the kernels are for any x86-64 processor since 2009 and use what newer ones have.
if(PROJECT_IS_TOP_LEVEL)
  set(CPACK_PACKAGE_CONTACT "The ringgrad authors <ringgrad@localhost>")
  set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
  set(CPACK_STRIP_FILES ON)
  set(CPACK_COMPONENTS_ALL library program)
  set(CPACK_DEB_COMPONENT_INSTALL ON)
  set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)  # what the program is linked with
  set(CPACK_DEBIAN_PACKAGE_SECTION math)
  set(CPACK_DEBIAN_PROGRAM_PACKAGE_NAME ringgrad)
  set(CPACK_DEBIAN_PROGRAM_PACKAGE_RECOMMENDS ca-certificates)  # `data get`
  set(CPACK_DEBIAN_PROGRAM_PACKAGE_SUGGESTS "libringgrad-dev, g++")  # `learn check` compiles
  set(CPACK_COMPONENT_PROGRAM_DESCRIPTION "The program ringgrad, which trains, measures, explains and launches")
  set(CPACK_COMPONENT_LIBRARY_DESCRIPTION "The library ringgrad with its headers, for programs of one's own")
  set(CPACK_DEBIAN_LIBRARY_PACKAGE_NAME libringgrad-dev)
  set(CPACK_DEBIAN_LIBRARY_PACKAGE_DEPENDS "libfmt-dev, zlib1g-dev, libssl-dev")
  set(CPACK_DEBIAN_LIBRARY_PACKAGE_RECOMMENDS "libpng-dev, libjpeg-dev, libwebp-dev, libgif-dev, libtiff-dev")  # ringgrad::images
  if(RINGGRAD_ONEDNN_ON)
    string(APPEND CPACK_DEBIAN_LIBRARY_PACKAGE_DEPENDS ", libdnnl-dev")
  endif()
  set(CPACK_PACKAGE_FILE_NAME ringgrad-${PROJECT_VERSION}-linux-${CMAKE_SYSTEM_PROCESSOR})  # the tarball's
  file(WRITE ${PROJECT_BINARY_DIR}/tarball.cmake
       "if(CPACK_GENERATOR STREQUAL TGZ)\n  set(CPACK_PACKAGING_INSTALL_PREFIX /)\nendif()\n")
  set(CPACK_PROJECT_CONFIG_FILE ${PROJECT_BINARY_DIR}/tarball.cmake)
  include(CPack)
endif()

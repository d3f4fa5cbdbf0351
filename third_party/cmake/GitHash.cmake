# Writes the header OUT with the commit of SOURCE_DIR as RR_GIT_HASH, only when it changed. Run by
# every build of the program, so that a version never names a commit it was not built from.
execute_process(COMMAND git -C "${SOURCE_DIR}" rev-parse --short=12 HEAD
                OUTPUT_VARIABLE hash OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(NOT hash)
  set(hash unknown)
endif()
file(CONFIGURE OUTPUT "${OUT}" CONTENT "#define RR_GIT_HASH \"${hash}\"\n")

# Combines the objects that hold the kernels for one instruction set (ISA) into one object:
#   cmake -DLINKER= -DNM= -DOBJCOPY= -DISA= -DOBJECTS= -DOUTPUT= -P one_isa.cmake
# If several objects define a function, such as a template of the standard library, the linker keeps
# one of them. Code for AVX-512 could then run on a machine without it. So all functions of this
# object become local to it. Our variables stay global, because each kernel has one table. The
# initialisers go into a section that isa.cpp calls; nothing of the object runs unless it does.
execute_process(COMMAND ${LINKER} -r --force-group-allocation -o ${OUTPUT}.whole ${OBJECTS} COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${NM} --format=sysv --defined-only --extern-only ${OUTPUT}.whole OUTPUT_VARIABLE symbols
                COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "_Z(Z|GVZ)?N8ringgrad[^|\n ]* *[|][^|\n]*[|][^|\n]*[|] *(OBJECT|TLS)[|]" variables "${symbols}")
list(TRANSFORM variables REPLACE " *[|].*" "")
list(JOIN variables "\n" variables)
file(WRITE ${OUTPUT}.shared "${variables}\n")
execute_process(COMMAND ${OBJCOPY} --keep-global-symbols=${OUTPUT}.shared
                        --rename-section .init_array=ringgrad_kernels_${ISA}
                        --rename-section .init_array.00200=ringgrad_kernels_${ISA} ${OUTPUT}.whole ${OUTPUT}
                COMMAND_ERROR_IS_FATAL ANY)
file(REMOVE ${OUTPUT}.whole)

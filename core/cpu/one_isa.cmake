# Makes one object of those that hold the kernels compiled for one set of instructions (ISA): `cmake -DLINKER= -DNM=
# -DOBJCOPY= -DISA= -DOBJECTS= -DOUTPUT= -P one_isa.cmake`. The linker keeps one definition of a function that several
# objects have, a template of the standard library say, whosever that is: code for AVX-512 would run on a machine
# without. So all functions of this object become its own. Variables of ours stay everybody's: there is one table for
# each kernel. And its initialisers go into a section that isa.cpp calls; nothing of the object runs unless it does.
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

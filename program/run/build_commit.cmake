# Writes OUTPUT, which names the commit of the checkout ROOT that the program is built from. A file that says so already
# stays as it is, so that nothing is built again. `.git` is looked for, as a checkout may lie within another one.
set(commit "")
if(EXISTS ${ROOT}/.git)
  execute_process(COMMAND git -C ${ROOT} describe --always --abbrev=12 --exclude=* --dirty=+ OUTPUT_VARIABLE commit
                  OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
file(CONFIGURE OUTPUT ${OUTPUT} @ONLY CONTENT [[
namespace ringgrad::program {
extern const char* const kBuildCommit;
const char* const kBuildCommit = "@commit@";
}  // namespace ringgrad::program
]])

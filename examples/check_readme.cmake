# Fails unless the README shows quickstart.cpp to the letter.
file(READ ${README} readme)
file(READ ${SOURCE} source)
string(FIND "${readme}" "```cpp\n${source}```" position)
if(position EQUAL -1)
  message(FATAL_ERROR "README.md does not show examples/quickstart.cpp as it is")
endif()

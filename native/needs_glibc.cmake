# cmake -DLIBRARY=PATH -P needs_glibc.cmake: says which C library a built library needs, since no older one loads it.
file(STRINGS "${LIBRARY}" versions REGEX "^GLIBC_[0-9.]+$")
list(SORT versions COMPARE NATURAL ORDER DESCENDING)
list(GET versions 0 newest)
string(REPLACE "GLIBC_" "glibc " newest "${newest}")
get_filename_component(name "${LIBRARY}" NAME)
message(STATUS "${name} needs ${newest} or newer")

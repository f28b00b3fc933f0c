# cmake -DLIBRARY=PATH -P needs_glibc.cmake: says which C library a built library needs, since no older one loads it.
file(STRINGS "${LIBRARY}" versions REGEX "^GLIBC_[0-9.]+$")
list(SORT versions COMPARE NATURAL ORDER DESCENDING)
if(versions)  # none where it was built with another C library
  list(GET versions 0 newest)
  message(STATUS "${LIBRARY} needs ${newest} or newer")
endif()

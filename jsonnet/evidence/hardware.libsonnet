function(c, l) []


xy
SET LOCAL enable_bitmapscan = on

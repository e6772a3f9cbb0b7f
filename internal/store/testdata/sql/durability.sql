SELECT current_setting('fsync'), current_setting('synchronous_commit')

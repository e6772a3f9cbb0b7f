-- There is nothing to undo.
SELECT 1;

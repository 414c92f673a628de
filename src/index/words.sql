-- The words of messages and refusals, by their numbers; words.rs says what a word is. One further
-- word names the tree. The texts themselves stay in the journal alone.
CREATE VIRTUAL TABLE word USING fts5(
  text,
  content = '',
  columnsize = 0,
  tokenize = "unicode61 remove_diacritics 2 categories 'L* N* Co Mn Mc' tokenchars '-_'"
);

"""Words, sentences, numbers and dates of plain text, and a BM25 index. All of it is linear in the length of a text."""

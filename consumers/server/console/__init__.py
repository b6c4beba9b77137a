"""The console: pages for people, on what the topics have shown (docs/console.md).

Plain forms and links; scripts only keep pages up to date and check exported files. No page reads a
topic: `consumers.server.index` has what is shown.

- `install`: the console on an application: what routes use, headers, static files
- `visitors`: who looks: sessions, forms from elsewhere, addresses of other names
- `pages`: requests, models, what waits, the audit
- `forms`: what changes something: deletions, signing in
- `erasing`: the forms of an erasure: a person, and every model
- `erasures`: the pages of erasures, and what the person who has asked gets
- `answers`, `due`: what an erasure came to, in words; how many days are left for it
- `people`: from a person or a row to what concerns them
- `lookup`: which models have a row or a subject
- `live`: server-sent events: something has changed
- `rendering`: templates, and how times and outcomes are worded
- `offline`: the audit page as one file
"""

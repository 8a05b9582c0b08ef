// docs/requirements.md against this checkout, and what its check finds wrong in a page.
import { readFileSync } from 'node:fs'
import path from 'node:path'
import t from 'tap'
import { root } from '../fixtures/docs/pages.js'
import { anchorsOf, knownHere, requirementProblems } from '../fixtures/docs/requirements.js'

const known = await knownHere()
const problems = (page: string, documents?: Map<string, string>) =>
  requirementProblems(page, known, documents)

const row = (id: string, answer: string, at = 'fast.1') => `| ${id} | ${at} | it is fast | ${answer} |`

/** A page with a document of these rows. */
const pageOf = (rows: readonly string[], count = rows.length, section = count) =>
  `# Requirements

## Open topics

| topic | issue |
|---|---|
| speed | #1 |

## spec.md: ${count} rows

### Speed: ${section} rows

| id | at | requirement | where |
|---|---|---|---|
${rows.join('\n')}
`

const good = [
  row('S-1', '`test/docs/requirements.test.ts` “a page without fault”; `dgx-spark data read`'),
  row('S-2', '`dgx-spark run model.onnx --precision fp8 --runs 3`, `npm run lint`'),
  row('S-3', 'open: speed (on a GPU)'),
  row('S-4', 'restated: as `dgx-spark info`, which is fast'),
  row('S-5', 'declined: nothing is that fast'),
]

t.test('the page of this repository', async t => {
  t.same(problems(readFileSync(path.join(root, 'docs/requirements.md'), 'utf8')), [])
})

t.test('a page without fault', async t => {
  t.same(problems(pageOf(good)), [])
  t.same(problems('# Requirements\n'), ['the page has no rows'])
})

t.test('ids and counts', async t => {
  const without = (i: number) => good.toSpliced(i, 1)
  t.match(problems(pageOf(without(1))), [/^spec\.md: row 2 has id 'S-3', not S-2$/, /S-4/, /S-5/], 'a gap')
  t.match(problems(pageOf([...good, good[4]!])), [/row 6 has id 'S-5', not S-6/], 'one twice')
  t.same(problems(pageOf(without(4), 5, 4)), ['spec.md, all sections: 4 rows, its heading says 5'])
  t.same(problems(pageOf(without(4), 4, 5)), ['spec.md, Speed: 4 rows, its heading says 5'])
  const second = pageOf(good)
    .replace(/^[\s\S]*?(?=## spec)/, '')
    .replace('spec.md', 'design.md')
  t.match(problems(pageOf(good) + second), ['documents share a letter of ids: S, S'])
})

t.test('answers', async t => {
  const answered = (answer: string) => problems(pageOf([row('S-1', answer)]))
  const reported: [string, RegExp][] = [
    ['`test/docs/none.test.ts`', /^S-1: there is no test\/docs\/none\.test\.ts$/],
    ['restated: as in `test/docs/none.test.ts`', /there is no test\/docs\/none\.test\.ts/],
    [
      '`test/docs/api.test.ts` “every public class has an example”, “none”',
      /api\.test\.ts has no test “none”/,
    ],
    ['`test/docs/api.test.ts` “blocks”', /api\.test\.ts has no test “blocks”/],
    ['`dgx-spark nothing`', /dgx-spark nothing: there is no command 'nothing'/],
    ['`dgx-spark adapter nothing`', /there is no command 'nothing'/],
    ['`dgx-spark run --nothing`', /run has no option --nothing/],
    ['`npm run nothing`', /package\.json has no such script/],
    ['open: weather', /'weather' is no open topic; topics: speed/],
    ['declined: no', /has no reason/],
    ['', /is not one of a test or command, open, restated and declined/],
    ['soon', /'soon' is not one of/],
    ['`lib/index.ts`', /is not one of/],
    ['`dgx-spark info`, open: speed', /is not one of/],
    ['open: speed, declined: nothing is that fast', /is not one of/],
  ]
  for (const [answer, problem] of reported) {
    const found = answered(answer)
    t.equal(found.length, 1, `${answer}: ${found.join('; ')}`)
    t.match(found[0], problem)
  }
  t.match(problems(pageOf([row('S-1', 'open: speed', '')])), ['S-1: it has an empty cell'])
})

const document = `# Spec

## Purpose
To be written.

### Requirement: Fast
It is fast.

#### Scenario: On a GPU
- **GIVEN** a GPU
- **WHEN** it is asked
- **THEN** it is fast
  - as can be

| mode | speed |
|------|-------|
| fp8 | 8 |

\`\`\`
- no item
\`\`\`

**REQ-1.2** Speed
1. of light
`

t.test('what a document asks for', async t => {
  const anchors = anchorsOf(document)
  t.same(
    anchors.filter(({ isRequired }) => isRequired).map(({ anchor }) => anchor),
    ['purpose', 'fast', 'on-a-gpu', 'on-a-gpu.1', 'on-a-gpu.2', 'on-a-gpu.3', 'on-a-gpu.4', 'REQ-1.2.1'],
  )
  const required = anchors.filter(({ isRequired }) => isRequired)
  const rows = required.map(({ anchor }, i) => row(`S-${i + 1}`, 'open: speed', anchor))
  const documents = new Map([['spec.md', document]])
  t.same(problems(pageOf(rows), documents), [])
  t.same(problems(pageOf(rows.slice(0, -1)), documents), ['spec.md: REQ-1.2.1 has no row'])
  t.same(problems(pageOf([...rows, row('S-9', 'open: speed', 'slow.1')]), documents), [
    'S-9: spec.md has no slow.1',
  ])
  const unanswered = new Map([...documents, ['other.md', '## Goal\nPeace.\n']])
  t.same(problems(pageOf(rows), unanswered), ['other.md: goal has no row'])
})

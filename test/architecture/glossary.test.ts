// Vocabulary: identifiers and file names use no word that docs/glossary.md has retired. And the size of folders.
import { execFileSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import path from 'node:path'
import t from 'tap'

const root = path.resolve(import.meta.dirname, '../..')

const maxFiles = 40

const tracked = execFileSync(
  'git',
  ['ls-files', '-co', '--exclude-standard', 'lib', 'native', 'test', 'bench'],
  {
    cwd: root,
    encoding: 'utf8',
  },
)
  .split('\n')
  .filter(name => name !== '')
const sources = tracked.filter(name => /^(lib|native)\/.*\.(ts|cc|h|cu|cuh)$/.test(name))

/** The retired words: the first column of the table, without those that are retired in one sense only. */
function retiredWords(): string[] {
  const page = readFileSync(path.join(root, 'docs/glossary.md'), 'utf8')
  const rows = page.slice(page.indexOf('## Retired words')).matchAll(/^\| ([^|]+) \|/gm)
  return [...rows]
    .slice(1) // without the heading
    .flatMap(([, cell]) => cell!.split(', '))
    .filter(word => !/[()]/.test(word))
    .map(word => word.trim().replace('-', ''))
}

/** The words of an identifier or path, in lower case, without "in place": `planForSize` and `plan_for_size` have three. */
const wordsOf = (name: string): string[] =>
  (name.replace(/in_?place/i, '').match(/[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])/g) ?? []).map(word =>
    word.toLowerCase(),
  )

/** The identifiers of a file: words outside of comments and quotes. */
function identifiersOf(file: string): Set<string> {
  const text = readFileSync(path.join(root, file), 'utf8')
    .replace(/\/\*[\s\S]*?\*\/|\/\/[^\n]*/g, '')
    .replace(/'[^'\n]*'|"[^"\n]*"/g, '')
  return new Set(text.match(/[A-Za-z_]\w*/g) ?? [])
}

const folderOf = (file: string): string => file.split('/').slice(0, 2).join('/')

t.test('identifiers and file names use no retired word', async t => {
  const retired = new Set(retiredWords())
  t.ok(retired.has('sliver') && retired.has('volume') && !retired.has('lane'), 'the table was read')
  const uses = new Map<string, string[]>()
  for (const file of sources) {
    for (const name of [path.basename(file), ...identifiersOf(file)]) {
      for (const word of wordsOf(name)) {
        if (!retired.has(word)) continue
        const key = `${word} in ${folderOf(file)}`
        uses.set(key, [...(uses.get(key) ?? []), `${file}: ${name}`])
      }
    }
  }
  for (const [key, found] of uses) t.fail(`${key}: ${found.slice(0, 5).join('; ')}`)
})

t.test(`no folder has more than ${maxFiles} files`, async t => {
  const counts = new Map<string, number>()
  for (const file of tracked) {
    const folder = path.posix.dirname(file)
    counts.set(folder, (counts.get(folder) ?? 0) + 1)
  }
  for (const [folder, count] of counts) {
    t.ok(count <= maxFiles, `${folder} has ${count} files`)
  }
})

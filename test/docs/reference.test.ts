// Reference pages against the code: variables, codes of errors and warnings, links, headings, widths.
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import path from 'node:path'
import t from 'tap'
import { readConfig } from '#lib/core/config.js'
import { drawings, withParts } from '../fixtures/docs/layers.js'
import { firstCells, links, namedFiles, type Page, pages, prose, root } from '../fixtures/docs/pages.js'
import { orderOfRewrites } from '../fixtures/docs/rewrites.js'

const page = (name: string): Page => pages.find(page => page.name === path.join('docs', name))!
const source = (name: string): string => readFileSync(path.join(root, name), 'utf8')

/** Names of environment variables in a text. */
const variables = (text: string): string[] => [
  ...new Set(text.match(/\b(DGX_SPARK|OPENPILOT)_[A-Z0-9_]*[A-Z0-9]\b/g)),
]

/** Members of a union of string literals. */
function union(file: string, type: string): string[] {
  const [, body = ''] = source(file).match(new RegExp(`type ${type} =((?:\\s*\\| '\\w+')+)`))!
  return [...body.matchAll(/'(\w+)'/g)].map(([, name]) => name!)
}

t.test('configuration.md has every variable and default', async t => {
  const { text } = page('configuration.md')
  const read = [...source('lib/core/config.ts').matchAll(/'((?:DGX_SPARK|OPENPILOT)_\w+|CUDA|DEBUG)'/g)]
  const names = [...new Set(read.map(([, name]) => name!))]
  for (const name of names) t.match(text, `\`${name}`, name)
  const library = ['lib', 'native'].flatMap(folder =>
    readdirSync(path.join(root, folder), { recursive: true, encoding: 'utf8' })
      .filter(file => /\.(ts|cc|h)$/.test(file))
      .flatMap(file => variables(source(path.join(folder, file)))),
  )
  for (const name of new Set(library)) t.match(text, `\`${name}`, `${name} is read`)
  const settings = firstCells(page('configuration.md'), 'Settings')
  t.equal(settings.length, readConfig({}).entries.length, 'a row for each setting')
  for (const name of settings) t.ok(names.includes(name), `${name} is a setting`)
  for (const name of settings) {
    const flag = readConfig({ [name]: '0' }).entries.find(entry => entry.source === name)
    if (typeof flag?.value === 'boolean')
      t.match(text, new RegExp(`^\\| \`${name}\` .* 1 \\|$`, 'm'), `${name}: default 1`)
  }
})

t.test('errors.md has every code', async t => {
  const errors = page('errors.md')
  t.same(firstCells(errors, 'Errors').sort(), union('lib/core/errors.ts', 'ErrorCode').sort())
  t.same(firstCells(errors, 'Warnings').sort(), union('lib/core/log.ts', 'WarningCode').sort())
})

t.test('variables that pages name exist', async t => {
  const known = variables(page('configuration.md').text)
  for (const { name, text } of pages)
    for (const variable of variables(text)) t.ok(known.includes(variable), `${name}: ${variable}`)
})

/** As GitHub makes them. */
const anchor = (heading: string): string =>
  heading
    .trim()
    .toLowerCase()
    .replaceAll(/[^\p{L}\p{N}\s_-]/gu, '')
    .replaceAll(' ', '-')

t.test('links lead somewhere', async t => {
  for (const current of pages) {
    for (const target of links(current)) {
      const [file, fragment] = target.split('#')
      const full = file ? path.join(root, path.dirname(current.name), file) : path.join(root, current.name)
      t.ok(existsSync(full), `${current.name}: ${target}`)
      if (!fragment || !existsSync(full)) continue
      const headings = [...readFileSync(full, 'utf8').matchAll(/^#+ (.*)$/gm)].map(([, heading]) =>
        anchor(heading!),
      )
      t.ok(headings.includes(fragment), `${current.name}: ${target}`)
    }
  }
})

/** Pages that commands write. */
const written = ['docs/gpu-results.md']

t.test('files that pages name exist', async t => {
  for (const current of pages.filter(({ name }) => !name.endsWith('moved-files.md'))) {
    for (const file of namedFiles(current).filter(file => !written.includes(file)))
      t.ok(existsSync(path.join(root, file)), `${current.name}: ${file}; else run npm run docs:moved`)
  }
})

t.test('architecture.md shows imports and rewrites as they are', async t => {
  const { text } = page('architecture.md')
  const parts = { ...drawings(), ...(await orderOfRewrites()) }
  const components = Object.values(drawings()).flatMap(drawing => [...drawing.matchAll(/\["(.+)"\]/g)])
  for (const [, name] of components) t.match(text, new RegExp(`^\\| .*\`${name}\``, 'm'), `a row for ${name}`)
  t.equal(withParts(text, parts), text, 'else run npm run docs:architecture')
})

t.test('pages are readable', async t => {
  for (const current of pages) {
    const { name, text } = current
    t.ok(/^# \S/.test(text), `${name} begins with a title`)
    const lines = text.split('\n')
    if (lines.length > 40) t.ok(/^## /m.test(text), `${name} has headings`)
    const wide = prose(current)
      .split('\n')
      .filter(line => line.length > 150 && !/^\|/.test(line))
    t.same(wide, [], `${name}: lines of at most 150 columns, but for tables`)
  }
})

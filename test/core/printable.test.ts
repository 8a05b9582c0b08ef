// Names from files do not control the terminal: errors, warnings, and what commands print.
import { spawnSync } from 'node:child_process'
import { mkdirSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { inspect } from 'node:util'
import t, { type Test } from 'tap'
import { print, printError, printJson, printPairs, styled } from '#lib/cli/output.js'
import { printTable } from '#lib/cli/table.js'
import { SparkError } from '#lib/core/errors.js'
import { warnOnce } from '#lib/core/log.js'
import { printable, printableJson } from '#lib/core/printable.js'
import { parseConfig } from '#lib/dora/peft/config.js'
import { makeGraph, makeNode, tensorType } from '#lib/graph/graph.js'
import { writeOnnx } from '#lib/io/onnx/save.js'

/** Clears the screen, names the window, writes backwards, forges a line: in C0, C1 and as bidirectional controls. */
const hostile = 'a\x1b[2J\x1b]0;b\x07\x9b31m\u202ec\u2066d\u2028e\x7ff\r\ng'
const shown = 'a\\x1b[2J\\x1b]0;b\\x07\\x9b31m\\u{202e}c\\u{2066}d\\u{2028}e\\x7ff\\x0d\\x0ag'

/** Every character that must not reach a terminal; line feeds of our own may. */
const unsafe = new Set([
  ...Array.from({ length: 160 }, (_, code) => code).filter(code => code !== 10 && (code < 32 || code > 126)),
  0x061c,
  0x200e,
  0x200f,
  0x2028,
  0x2029,
  0x202a,
  0x202b,
  0x202c,
  0x202d,
  0x202e,
  0x2066,
  0x2067,
  0x2068,
  0x2069,
])
const isSafe = (text: string): boolean =>
  !Array.from(text).some(character => unsafe.has(character.codePointAt(0)!))

t.test('texts', async t => {
  t.equal(printable(hostile), shown)
  for (const code of unsafe) t.ok(isSafe(printable(String.fromCodePoint(code))), `U+${code.toString(16)}`)
  for (const text of ['', 'é 漢字 😀 שלום', 'C:\\new', 'x\u200dy']) t.equal(printable(text), text)
  const json = printableJson(JSON.stringify({ [hostile]: hostile }, null, 2))
  t.ok(isSafe(json))
  t.same(JSON.parse(json), { [hostile]: hostile }, 'JSON means the same')
})

t.test('errors', async t => {
  const error = new SparkError('ERR_FORMAT', `'${hostile}' is wrong`)
  t.equal(error.message, `'${shown}' is wrong`)
  t.ok(isSafe(error.stack!))
  t.notOk('cause' in error)
  const system = Object.assign(new TypeError(`open '${hostile}'`), { code: 'ENOENT' })
  const { cause } = new SparkError('ERR_IO', 'x', { cause: system })
  t.ok(cause instanceof TypeError)
  t.match(cause, { code: 'ENOENT', message: `open '${shown}'` })
  t.equal(system.message, `open '${hostile}'`, 'the error of somebody else stays as it is')
  const plain = new Error('plain')
  t.equal(new SparkError('ERR_IO', 'x', { cause: plain }).cause, plain)
  for (const text of [`{"a": "${hostile}"}`, hostile, `{"peft_type":${JSON.stringify(hostile)}}`]) {
    try {
      parseConfig('adapter_config.json', text)
      t.fail('that is no config')
    } catch (error) {
      t.ok(isSafe(inspect(error)), 'as Node prints an error that nobody catches, causes included')
    }
  }
})

t.test('warnings', async t => {
  const warning = new Promise<Error>(resolve => process.once('warning', resolve))
  warnOnce('SPARK_UNUSED_PATTERN', hostile, `pattern '${hostile}' matches nothing`)
  t.equal((await warning).message, `pattern '${shown}' matches nothing`)
})

/** What is written while `task` runs on a terminal. */
function captured(t: Test, task: () => void): string {
  let text = ''
  const restore: (() => void)[] = []
  for (const stream of [process.stdout, process.stderr]) {
    const { write, isTTY } = stream
    stream.isTTY = true
    stream.write = (chunk: unknown) => {
      text += chunk
      return true
    }
    restore.push(() => Object.assign(stream, { write, isTTY }))
  }
  const { NO_COLOR, FORCE_COLOR } = process.env
  delete process.env.NO_COLOR
  process.env.FORCE_COLOR = '1'
  try {
    task()
  } finally {
    for (const each of restore) each()
    if (NO_COLOR !== undefined) process.env.NO_COLOR = NO_COLOR
    if (FORCE_COLOR === undefined) delete process.env.FORCE_COLOR
    else process.env.FORCE_COLOR = FORCE_COLOR
  }
  t.not(text, '')
  return text
}

t.test('what commands print on a terminal', async t => {
  const text = captured(t, () => {
    print(hostile, styled('bold', hostile), ` ${styled('red', hostile)}`)
    printError(hostile)
    printJson({ [hostile]: hostile })
    printPairs([[hostile, hostile]])
    printTable(['name', hostile], [[hostile, styled('green', hostile)]])
  })
  t.match(text, '\x1b[1m', 'there are styles')
  // biome-ignore lint/suspicious/noControlCharactersInRegex: the styles that output.ts makes
  t.ok(isSafe(text.replace(/\x1b\[(0|1|22|31|32|39|90)m/g, '')), JSON.stringify(text))
})

t.test('commands on a model whose names are hostile', async t => {
  const dir = t.testdir()
  const folder = path.join(dir, 'adapter')
  const model = path.join(dir, 'model.onnx')
  const graph = makeGraph({
    name: hostile,
    inputs: [{ name: hostile, type: tensorType('f32', [hostile, 3]) }],
    outputs: [{ name: `${hostile}y` }],
    nodes: [{ ...makeNode('Relu', [hostile], [`${hostile}y`]), name: hostile }],
  })
  await writeOnnx(graph, model)
  mkdirSync(folder)
  writeFileSync(path.join(folder, 'adapter_config.json'), `{"peft_type": ${JSON.stringify(hostile)}}`)
  const cli = path.resolve(import.meta.dirname, '../../dist/cli/main.js')
  const commands = [
    ['inspect', model],
    ['inspect', model, '--json'],
    ['run', model],
    ['run', model, '--size', 'other=3'],
    ['run', path.join(dir, hostile)],
    ['adapter', 'info', folder],
    [hostile],
    ['run', `--${hostile}`],
  ]
  for (const args of commands) {
    const env = { ...process.env, NODE_OPTIONS: '', DGX_SPARK_BACKEND: 'js' }
    const { stdout, stderr } = spawnSync(process.execPath, [cli, ...args], { env, encoding: 'utf8' })
    t.ok(isSafe(stdout + stderr), encodeURI(args.join(' ')))
    t.match(stdout + stderr, /\\(x1b|u001b)/, 'the names are there')
  }
})

// The API reference: an example per public class, examples in a syntax that the oldest Node.js reads, no unnamed category.
import { readdirSync, readFileSync } from 'node:fs'
import path from 'node:path'
import { Script } from 'node:vm'
import * as library from 'dgx-spark'
import * as cluster from 'dgx-spark/cluster'
import t from 'tap'
import { ModuleKind, ScriptTarget, transpileModule } from 'typescript'
import { root } from '../fixtures/docs/pages.js'

const files = readdirSync(path.join(root, 'lib'), { recursive: true, encoding: 'utf8' })
  .filter(name => name.endsWith('.ts'))
  .map(name => ({ name, text: readFileSync(path.join(root, 'lib', name), 'utf8') }))

/** The JSDoc comments of a file. */
const comments = (text: string): string[] => text.match(/\/\*\*[\s\S]*?\*\//g) ?? []

/** The code below `@example`, up to the next tag. */
function examplesOf(comment: string): string[] {
  const lines = comment.split('\n').map(line => line.replace(/^\s*\*( |\/?$)/, ''))
  const [, ...parts] = lines.join('\n').split(/^@example\b.*\n/m)
  return parts.map(part => part.split(/^@\w+/m)[0]!.replace(/^```\w*$/gm, ''))
}

t.test('every public class has an example', t => {
  const classes = [...Object.entries(library), ...Object.entries(cluster)].filter(
    ([, value]) => typeof value === 'function' && /^class\b/.test(String(value)),
  )
  t.ok(classes.length >= 30, `${classes.length} classes`)
  for (const [name] of classes) {
    const declaration = new RegExp(
      `(\\/\\*\\*(?:(?!\\*\\/)[\\s\\S])*\\*\\/)\\nexport (abstract )?class ${name}\\b`,
    )
    // An internal class may have the same name.
    const found = files.flatMap(({ text }) => declaration.exec(text)?.[1] ?? [])
    t.ok(
      found.some(comment => examplesOf(comment).length > 0),
      name,
    )
  }
  t.end()
})

t.test('examples are JavaScript of the oldest Node.js', t => {
  let count = 0
  for (const { name, text } of files) {
    for (const example of comments(text).flatMap(examplesOf)) {
      const body = `export default async () => {\n${example.replace(/^import .*$/gm, '')}\n}`
      const { outputText } = transpileModule(body, {
        compilerOptions: { target: ScriptTarget.ESNext, module: ModuleKind.CommonJS },
      })
      t.doesNotThrow(() => new Script(outputText), `${name}: ${example.slice(0, 60)}`)
      t.notMatch(example, /\busing \w+ =/, `${name}: Node.js 24 and later only`)
      count++
    }
  }
  t.ok(count > 18, `${count} examples`)
  t.end()
})

// client.js: what is said about the layers of the page of a placement, by pointer and keys; runs in the browser.
const element = id => document.getElementById(id)
const texts = JSON.parse(element('data').textContent)
const theme = matchMedia('(prefers-color-scheme: dark)')
const layers = [...document.querySelectorAll('.strip button')]
let chosen = 0

/** Shows a layer; `focus`: that of keys goes with it. */
function show(index, focus) {
  layers[chosen].setAttribute('aria-pressed', 'false')
  layers[chosen].tabIndex = -1
  chosen = Math.min(layers.length - 1, Math.max(0, index))
  layers[chosen].setAttribute('aria-pressed', 'true')
  layers[chosen].tabIndex = 0
  if (focus) layers[chosen].focus()
  element('now').textContent = texts[chosen]
}

for (const [i, layer] of layers.entries()) {
  layer.onclick = () => show(i, true)
  layer.onpointerenter = () => show(i, false)
}

const actions = {
  ArrowLeft: () => show(chosen - 1, true),
  ArrowRight: () => show(chosen + 1, true),
  Home: () => show(0, true),
  End: () => show(layers.length - 1, true),
}

document.addEventListener('keydown', event => {
  if (event.ctrlKey || event.metaKey || event.altKey || !Object.hasOwn(actions, event.key)) return
  actions[event.key]()
  event.preventDefault()
})

const isDark = () => (document.documentElement.dataset.theme ?? (theme.matches ? 'dark' : 'light')) === 'dark'
function nameTheme() {
  element('theme').textContent = isDark() ? 'Light' : 'Dark'
}
element('theme').onclick = () => {
  document.documentElement.dataset.theme = isDark() ? 'light' : 'dark'
  nameTheme()
}
theme.addEventListener('change', nameTheme)
nameTheme()
show(0, false)

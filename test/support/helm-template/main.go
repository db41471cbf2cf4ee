// helm-template CHART RELEASE VALUES.json: the manifests of a chart, by Helm's template engine (Go's text/template) and
// the Helm functions that our chart calls. For machines without helm; if helm is installed, tests also use it.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"text/template"
)

func main() {
	if err := render(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func render(chart, release, valuesFile string) error {
	text, err := os.ReadFile(valuesFile)
	if err != nil {
		return err
	}
	var values map[string]any
	if err := json.Unmarshal(text, &values); err != nil {
		return err
	}
	functions := template.FuncMap{
		"quote": func(value any) string { return fmt.Sprintf("%q", fmt.Sprint(value)) },
		"int":   func(value float64) int { return int(value) },
		// JSON is YAML.
		"toYaml":  func(value any) (string, error) { out, err := json.Marshal(value); return string(out), err },
		"nindent": func(_ int, text string) string { return text },
	}
	files, err := filepath.Glob(filepath.Join(chart, "templates", "*.yaml"))
	if err != nil {
		return err
	}
	for _, file := range files {
		// Like Helm: a missing value is an error, not "<no value>".
		parsed, err := template.New(filepath.Base(file)).Option("missingkey=error").Funcs(functions).ParseFiles(file)
		if err != nil {
			return err
		}
		fmt.Println("---")
		data := map[string]any{"Values": values, "Release": map[string]any{"Name": release}}
		if err := parsed.Execute(os.Stdout, data); err != nil {
			return err
		}
		fmt.Println()
	}
	return nil
}

// SPDX-License-Identifier: Apache-2.0

// Command picture reads the output of the demo. With the file of a picture, it fails unless the picture shows the demo's third step;
// without a file, it prints this step.
package main

import (
	"errors"
	"fmt"
	"html"
	"io"
	"os"
	"regexp"
	"strings"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "picture:", err)
		os.Exit(1)
	}
}

func run(files []string) error {
	output, err := io.ReadAll(os.Stdin)
	if err != nil {
		return fmt.Errorf("reading what the demo has printed: %w", err)
	}
	step := regexp.MustCompile(`(?ms)^(?:\x1b\[1m)?3\. .*?^(?:\x1b\[1m)?4\. `).FindString(string(output))
	if step == "" {
		return errors.New("the demo has not printed steps 3 and 4")
	}
	step = strings.TrimSpace(step[:strings.LastIndex(step, "\n")]) + "\n"
	if len(files) == 0 {
		_, err = fmt.Print(step)
		return err
	}
	shown, err := textOf(files[0])
	if err != nil {
		return err
	}
	if printed := regexp.MustCompile("\x1b\\[[0-9;]*m").ReplaceAllString(step, ""); shown != printed {
		return fmt.Errorf("%s shows\n%s\nand the demo prints\n%s\nhack/update-docs.sh demo draws it again", files[0], shown, printed)
	}
	return nil
}

// textOf returns the text of a picture: each of its elements "text" is a line.
func textOf(file string) (string, error) {
	picture, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("reading the picture: %w", err)
	}
	var text strings.Builder
	for _, line := range regexp.MustCompile(`(?s)<text\b[^>]*?(?:/>|>(.*?)</text>)`).FindAllStringSubmatch(string(picture), -1) {
		text.WriteString(html.UnescapeString(regexp.MustCompile(`<[^>]*>`).ReplaceAllString(line[1], "")) + "\n")
	}
	return text.String(), nil
}

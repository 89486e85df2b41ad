"""What tests of several rooms share: runs of scripts, local servers, recordings, files of data sets."""
